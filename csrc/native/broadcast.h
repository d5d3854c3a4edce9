// Binary operations on float32 tensors of any strides and broadcasts.
#pragma once

#include <string>

#include "layout.h"
#include "step.h"

namespace pfb {

// Strides of a tensor seen as `shape`: 0 where it is repeated.  Ranks must be equal.
Dims BroadcastStrides(const Desc& desc, const Dims& shape);

// A kernel with arguments (a, b, result).  `kind`: add, sub, mul, div, max, min.
// Throws std::invalid_argument for other kinds.
Kernel BroadcastKernel(const std::string& kind, const Dims& shape, const Dims& a, const Dims& b,
                       const Dims& result);

}  // namespace pfb
