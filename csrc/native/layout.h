// Questions about memory descriptors: is it row-major, is it dense, what would make it so.
#pragma once

#include <vector>

#include "dtype.h"
#include "onednn.h"

namespace pfb {

using Dims = dnnl::memory::dims;
using Desc = dnnl::memory::desc;

// Row-major strides, in elements.
Dims RowMajorStrides(const Dims& shape);
Desc RowMajor(const Dims& shape, dnnl::memory::data_type type);
inline Desc RowMajor(const Dims& shape, DType dtype) { return RowMajor(shape, Carrier(dtype)); }

// Any layout: the primitive chooses.
Desc AnyLayout(const Dims& shape);

// Channels last (NHWC, and its 1-D and 3-D kin).
Desc ChannelsLast(const Dims& shape, dnnl::memory::data_type type);

// Elements from pixel to pixel of an image whose channels are last, perhaps some of a larger one's.
dnnl::memory::dim PixelStride(const Desc& desc);

// Strides only, no inner blocks.
bool IsStrided(const Desc& desc);

// Whether the bytes are those of the row-major tensor, whatever the descriptor says: NHWC with one
// pixel and a blocked layout of a vector are row-major too.
bool IsRowMajor(const Desc& desc);

// Whether the pixels of each plane [batch, channel] are row-major and no two planes overlap.
bool HasDensePlanes(const Desc& desc);

// Whether no byte between the first and the last element is unused (any order of dimensions).
bool IsDense(const Desc& desc);

// A dense layout of `shape` whose dimensions lie in memory in the same order as those of `model`,
// which is strided.
Desc InOrderOf(const Desc& model, const Dims& shape);

// The same order of dimensions without gaps; blocked layouts are returned as they are.
Desc Compact(const Desc& desc);

// The same layout with one spelling for the strides of dimensions of size 1, which mean nothing:
// those of a row-major tensor, or the whole extent in front of all others.
//
// oneDNN 3.6 compares descriptors without them, so that its primitive cache serves one primitive
// for all spellings, but several primitives compute with them: a permutation's left-overs made
// concat and matmul read the wrong elements.
Desc WithPlainUnits(const Desc& desc);

long long ElementCount(const Dims& shape);

}  // namespace pfb
