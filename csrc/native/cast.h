// Conversion between element types.
#pragma once

#include "dtype.h"
#include "step.h"

namespace pfb {

// A kernel with arguments (source, result) of `count` dense elements.  Converts among float32,
// float64, int64, int32, uint8 and bool; throws std::invalid_argument for other types.
Kernel CastKernel(DType from, DType to, std::size_t count);

}  // namespace pfb
