// Images resampled or pooled with weights and windows that differ from pixel to pixel: what
// oneDNN's resampling and pooling do not cover.
#pragma once

#include <cstddef>
#include <vector>

#include "step.h"

namespace pfb {

// What each pixel of one axis of the result is made of: taps [first[i], first[i + 1]) are pixels
// `source[t]` of the input, each times `weight[t]`.
struct AxisWindows {
  std::vector<int> first;
  std::vector<int> source;
  std::vector<float> weight;

  std::size_t size() const { return first.size() - 1; }
};

// An image seen as [outer][rows][columns][inner]: planes one after the other with inner 1, or
// channels last.
struct WindowsShape {
  std::size_t outer, rows, columns, inner;
  AxisWindows vertical, horizontal;
  bool maximum;  // of the pixels, in place of their weighted sum
};

// Arguments: source, result.  A NaN wins a maximum.
Kernel WindowsKernel(WindowsShape shape);

}  // namespace pfb
