// An image of three planes to pixels of three channels: what every image goes through first.
#pragma once

#include <cstddef>

#include "step.h"

namespace pfb {

// Whether this processor has the instructions that make it quicker than oneDNN's reorder.
bool InterleaveSupported();

// Arguments: source [batch][3][pixels], planes and images `plane` and `image` elements apart;
// result [batch][pixels][3].
Kernel InterleaveKernel(std::size_t batch, std::size_t pixels, std::size_t plane,
                        std::size_t image);

}  // namespace pfb
