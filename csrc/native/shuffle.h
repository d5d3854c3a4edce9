// The channels of two images in turn: a concat and a channel shuffle in one go.
#pragma once

#include <cstddef>

#include "step.h"

namespace pfb {

struct ShuffleShape {
  std::size_t pixels, channels;    // of each source
  std::size_t a_stride, b_stride;  // from pixel to pixel of the sources
  bool halves;                     // two results: the first half of the channels, and the other
};

// A kernel with arguments (a, b, results...), channels last: channel 2 i is a's i, 2 i + 1 is b's.
Kernel ShuffleKernel(const ShuffleShape& shape);

}  // namespace pfb
