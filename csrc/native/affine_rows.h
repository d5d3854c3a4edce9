// A channelwise function of pixels: what is left of a batch norm that nothing could take in.
#pragma once

#include <cstddef>

#include "activation.h"

namespace pfb {

// Whether this processor has the vector instructions that the loop is written for.
bool AffineRowsSupported();

// result[row][c] = activation(source[row][c] * scale[c] + shift[c]); the rows of the source are
// `stride` elements apart, those of the result `channels`.  Not-a-number stays what it is.
void AffineRows(const float* source, std::size_t stride, std::size_t rows, std::size_t channels,
                const float* scale, const float* shift, const Activation& activation,
                float* result);

}  // namespace pfb
