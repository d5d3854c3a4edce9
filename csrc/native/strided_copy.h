// Copies a tensor between two strided layouts: the reorder for every element size.
#pragma once

#include "layout.h"
#include "step.h"

namespace pfb {

// A kernel with arguments (source, destination).  Strides in elements; a source stride may be 0
// (broadcast) or negative (reversed).  Dimensions are merged and the innermost loop is contiguous
// where the layouts allow.
Kernel StridedCopy(Dims shape, Dims from, Dims to, std::size_t element_bytes);

}  // namespace pfb
