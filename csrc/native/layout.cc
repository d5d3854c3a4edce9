#include "layout.h"

#include <algorithm>
#include <numeric>

namespace pfb {
namespace {

// One physical axis: `size` steps of `stride` elements.
struct Axis {
  dnnl::memory::dim size;
  dnnl::memory::dim stride;
};

// Dimensions of a strided descriptor ordered from the outermost to the innermost in memory.
std::vector<std::size_t> MemoryOrder(const Desc& desc) {
  const Dims strides = desc.get_strides();
  std::vector<std::size_t> order(strides.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return strides[a] > strides[b]; });
  return order;
}

bool IsBlockedKind(const Desc& desc) {
  return desc.get_format_kind() == dnnl::memory::format_kind::blocked;
}

}  // namespace

long long ElementCount(const Dims& shape) {
  return std::accumulate(shape.begin(), shape.end(), 1LL, std::multiplies<>());
}

Dims RowMajorStrides(const Dims& shape) {
  Dims strides(shape.size());
  dnnl::memory::dim stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

Desc RowMajor(const Dims& shape, dnnl::memory::data_type type) {
  return Desc(shape, type, RowMajorStrides(shape));
}

Desc AnyLayout(const Dims& shape) {
  return Desc(shape, dnnl::memory::data_type::f32, dnnl::memory::format_tag::any);
}

Desc ChannelsLast(const Dims& shape, dnnl::memory::data_type type) {
  Dims strides(shape.size());
  strides[1] = 1;
  dnnl::memory::dim stride = shape[1];
  for (std::size_t i = shape.size(); i-- > 2;) {
    strides[i] = stride;
    stride *= shape[i];
  }
  strides[0] = stride;
  return Desc(shape, type, strides);
}

dnnl::memory::dim PixelStride(const Desc& desc) {
  const Dims shape = desc.get_dims(), strides = desc.get_strides();
  // Dimensions of size 1 may have any stride.
  for (std::size_t i = shape.size(); i-- > 2;) {
    if (shape[i] != 1) return strides[i];
  }
  return shape[0] != 1 ? strides[0] : shape[1];
}

bool IsStrided(const Desc& desc) { return IsBlockedKind(desc) && desc.get_inner_nblks() == 0; }

bool IsRowMajor(const Desc& desc) {
  if (!IsBlockedKind(desc) || desc.get_padded_dims() != desc.get_dims()) return false;
  const Dims shape = desc.get_dims();
  const Dims strides = desc.get_strides();
  const Dims expected = RowMajorStrides(shape);
  const int blocks = desc.get_inner_nblks();
  if (blocks > 1) return false;
  const auto blocked_dim = blocks == 1 ? desc.get_inner_idxs()[0] : -1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (static_cast<dnnl::memory::dim>(i) == blocked_dim) {
      const auto block = desc.get_inner_blks()[0];
      if (expected[i] != 1) return false;
      if (shape[i] > block && strides[i] != block) return false;
    } else if (shape[i] != 1) {
      if (blocks == 1 || strides[i] != expected[i]) return false;
    }
  }
  return true;
}

bool HasDensePlanes(const Desc& desc) {
  if (!IsStrided(desc)) return false;
  const Dims shape = desc.get_dims(), strides = desc.get_strides();
  dnnl::memory::dim expected = 1;
  for (std::size_t i = shape.size(); i-- > 2;) {
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return shape[1] == 1 || strides[1] >= expected;
}

bool IsDense(const Desc& desc) {
  if (!IsBlockedKind(desc)) return false;
  const auto elements = ElementCount(desc.get_padded_dims());
  const std::size_t bytes = dnnl::memory::data_type_size(desc.get_data_type());
  if (!IsStrided(desc)) return desc.get_size() == static_cast<std::size_t>(elements) * bytes;
  const Dims shape = desc.get_dims();
  const Dims strides = desc.get_strides();
  dnnl::memory::dim expected = 1;
  const auto order = MemoryOrder(desc);
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    if (shape[*it] == 1) continue;
    if (strides[*it] != expected) return false;
    expected *= shape[*it];
  }
  return true;
}

Desc InOrderOf(const Desc& model, const Dims& shape) {
  Dims strides(shape.size());
  dnnl::memory::dim stride = 1;
  const auto order = MemoryOrder(model);
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    strides[*it] = stride;
    stride *= shape[*it];
  }
  return Desc(shape, model.get_data_type(), strides);
}

Desc WithPlainUnits(const Desc& desc) {
  if (!IsStrided(desc)) return desc;
  const Dims shape = desc.get_dims();
  Dims strides = desc.get_strides();
  if (std::find(shape.begin(), shape.end(), 1) == shape.end()) return desc;
  dnnl::memory::dim extent = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != 1) extent = std::max(extent, strides[i] * shape[i]);
  }
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1) continue;
    strides[i] = i + 1 < shape.size() ? strides[i + 1] * shape[i + 1] : 1;
  }
  for (std::size_t i = 0; i < shape.size() && shape[i] == 1; ++i) strides[i] = extent;
  return Desc(shape, desc.get_data_type(), strides);
}

Desc Compact(const Desc& desc) { return IsStrided(desc) ? InOrderOf(desc, desc.get_dims()) : desc; }

}  // namespace pfb
