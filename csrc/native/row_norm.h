// Normalisations by loops of our own: RMS norm of rows, group and instance norm of images.
#pragma once

#include <cstddef>

#include "step.h"

namespace pfb {

// y = x / sqrt(mean(x^2) + epsilon) [* scale], per row.  Arguments: source, result, scale where
// `scaled`.
Kernel RmsNormKernel(std::size_t rows, std::size_t columns, float epsilon, bool scaled);

// Group norm; with as many groups as channels it is instance norm.
struct GroupNormShape {
  std::size_t batch, channels, pixels, groups;
  bool channels_last;
  bool scaled, shifted;
  float epsilon;
  std::size_t chunks;  // of pixels, each summed up on its own

  // Floats of working memory.
  std::size_t work() const { return (chunks + 2) * channels; }
};

// Arguments: source, result, working memory, then scale and shift where there are any.
Kernel GroupNormKernel(const GroupNormShape& shape);

}  // namespace pfb
