// Reductions of float32 tensors over neighbouring dimensions.
#pragma once

#include <string>

#include "step.h"

namespace pfb {

// A kernel with arguments (source, result): the source is [outer, reduced, inner], dense, the
// result [outer, inner].  `kind`: sum, mean, max, min; a NaN makes the result NaN, as in Paddle.
// Throws std::invalid_argument for other kinds.
Kernel ReduceKernel(const std::string& kind, std::size_t outer, std::size_t reduced,
                    std::size_t inner);

}  // namespace pfb
