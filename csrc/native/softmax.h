// Softmax over planes, pixel by pixel.
#pragma once

#include <cstddef>

#include "step.h"

namespace pfb {

// Whether this processor has the vector instructions that the loop is written for.
bool PlaneSoftmaxSupported();

// A kernel with arguments (source, result), both [outer][planes][pixels]: softmax over the planes.
// A pixel with a not-a-number or +inf among its elements, or with nothing but -inf, is
// not-a-number throughout.
Kernel PlaneSoftmaxKernel(std::size_t outer, std::size_t planes, std::size_t pixels);

}  // namespace pfb
