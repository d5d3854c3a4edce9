// Comparison, logic and selection, and the arithmetic of whole numbers: what oneDNN has no types
// for.  Any strides and broadcasts, as in broadcast.h.
#pragma once

#include <string>

#include "layout.h"
#include "step.h"

namespace pfb {

// Arguments (a, b, result): a and b of `dtype`, the result bool.  `kind`: equal, not_equal,
// less_than, less_equal, greater_than, greater_equal; for bool also and, or, xor.
// Throws std::invalid_argument for others.
Kernel CompareKernel(const std::string& kind, DType dtype, const Dims& shape, const Dims& a,
                     const Dims& b, const Dims& result);

// Arguments (a, b, result), all int32 or int64.  `kind`: add, sub, mul, max, min.
Kernel IntegerKernel(const std::string& kind, DType dtype, const Dims& shape, const Dims& a,
                     const Dims& b, const Dims& result);

// Arguments (condition, x, y, result): x where the bool condition holds, else y; elements of
// `element_bytes` (1, 2, 4 or 8).
Kernel SelectKernel(std::size_t element_bytes, const Dims& shape, const Dims& condition,
                    const Dims& x, const Dims& y, const Dims& result);

}  // namespace pfb
