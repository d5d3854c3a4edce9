// Views, and the operations that only move elements.
#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "builder.h"
#include "shuffle.h"
#include "strided_copy.h"

namespace pfb {

namespace {

using Dim = dnnl::memory::dim;

// Neighbouring dimensions before and after a reshape that hold the same elements.
struct Group {
  std::size_t old_begin, old_end;
  std::size_t new_begin, new_end;
};

// The shortest groups.
std::vector<Group> GroupDimensions(const Dims& from, const Dims& to) {
  std::vector<Group> groups;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < from.size() || j < to.size()) {
    Group group{i, i, j, j};
    Dim old_product = i < from.size() ? from[i++] : 1;
    Dim new_product = j < to.size() ? to[j++] : 1;
    while (old_product != new_product) {
      if (old_product < new_product) {
        old_product *= from[i++];
      } else {
        new_product *= to[j++];
      }
    }
    group.old_end = i;
    group.new_end = j;
    groups.push_back(group);
  }
  return groups;
}

// The stride of a group's innermost element when its old dimensions lie one inside the other, or
// -1.
Dim InnerStride(const Group& group, const Dims& shape, const Dims& strides) {
  Dim inner = -1;
  Dim expected = -1;
  for (std::size_t i = group.old_end; i-- > group.old_begin;) {
    if (shape[i] == 1) continue;
    if (inner < 0) inner = expected = strides[i];
    if (strides[i] != expected) return -1;
    expected *= shape[i];
  }
  return inner < 0 ? 1 : inner;
}

// Old strides such that each group is one run, groups in their present order in memory.
Dims GroupedStrides(const std::vector<Group>& groups, const Dims& shape, const Dims& strides) {
  std::vector<std::pair<Dim, std::size_t>> order;  // (smallest stride, group)
  for (std::size_t g = 0; g < groups.size(); ++g) {
    Dim smallest = std::numeric_limits<Dim>::max();
    for (std::size_t i = groups[g].old_begin; i < groups[g].old_end; ++i) {
      if (shape[i] != 1) smallest = std::min(smallest, strides[i]);
    }
    order.emplace_back(smallest, g);
  }
  std::stable_sort(order.begin(), order.end());
  Dims made(shape.size());
  Dim stride = 1;
  for (const auto& [smallest, g] : order) {
    for (std::size_t i = groups[g].old_end; i-- > groups[g].old_begin;) {
      made[i] = stride;
      stride *= shape[i];
    }
  }
  return made;
}

}  // namespace

// A view where strides can express it.  Otherwise one copy that keeps the order in memory of what
// the reshape leaves apart: channels that are last stay last through a channel shuffle.
int PlanBuilder::Reshape(int value, const Dims& wanted) {
  const Dims old = shape(value);
  if (old == wanted) return value;
  if (ElementCount(old) != ElementCount(wanted)) {
    throw std::invalid_argument("a reshape changes the number of elements");
  }
  if (IsRowMajor(desc(value))) return View(value, RowMajor(wanted, values_[value].dtype));
  if (!IsStrided(desc(value)) || IsConstant(value)) return Reshape(RowMajorOf(value), wanted);
  const auto groups = GroupDimensions(old, wanted);
  const Dims old_strides = desc(value).get_strides();
  Dims strides(wanted.size());
  for (const Group& group : groups) {
    Dim stride = InnerStride(group, old, old_strides);
    if (stride < 0) {
      const Desc grouped(old, desc(value).get_data_type(),
                         GroupedStrides(groups, old, old_strides));
      return Reshape(InLayout(value, grouped), wanted);
    }
    for (std::size_t j = group.new_end; j-- > group.new_begin;) {
      strides[j] = stride;
      stride *= wanted[j];
    }
  }
  return View(value, Desc(wanted, desc(value).get_data_type(), strides));
}

int PlanBuilder::Permute(int value, const std::vector<int>& permutation) {
  // oneDNN: axis i of the old becomes axis permutation[i] of the new; Paddle: the other way round.
  std::vector<int> inverse(permutation.size());
  for (std::size_t i = 0; i < permutation.size(); ++i) {
    inverse[static_cast<std::size_t>(permutation[i])] = static_cast<int>(i);
  }
  if (!IsStrided(desc(value))) value = RowMajorOf(value);
  return View(value, desc(value).permute_axes(inverse));
}

int PlanBuilder::Slice(int value, const Dims& begin, const Dims& wanted, const Dims& step) {
  const bool plain_step = std::all_of(step.begin(), step.end(), [](auto s) { return s == 1; });
  if (!IsStrided(desc(value))) value = RowMajorOf(value);
  Dims strides = desc(value).get_strides();
  std::size_t offset = 0;
  for (std::size_t i = 0; i < begin.size(); ++i) {
    offset += static_cast<std::size_t>(begin[i] * strides[i]) * SizeOf(values_[value].dtype);
  }
  if (plain_step) return View(value, Desc(wanted, desc(value).get_data_type(), strides), offset);
  // Every s-th element is a tensor with strides s times as large, starting at the first of them.
  const Dims one(wanted.size(), 1);
  const int first = View(value, RowMajor(one, values_[value].dtype), offset);
  for (std::size_t i = 0; i < strides.size(); ++i) strides[i] *= step[i];
  const int result = NewValue(RowMajor(wanted, values_[value].dtype), values_[value].dtype);
  AddKernel({{0, first}, {1, result}},
            StridedCopy(wanted, strides, desc(result).get_strides(), SizeOf(values_[value].dtype)));
  return result;
}

int PlanBuilder::Expand(int value, const Dims& wanted) {
  Dims padded = shape(value);
  padded.insert(padded.begin(), wanted.size() - padded.size(), 1);
  int source = Reshape(value, padded);
  if (padded == wanted) return source;
  if (!IsStrided(desc(source))) source = RowMajorOf(source);
  Dims strides = desc(source).get_strides();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (padded[i] != wanted[i]) strides[i] = 0;
  }
  const int result = NewValue(RowMajor(wanted, values_[source].dtype), values_[source].dtype);
  AddKernel({{0, source}, {1, result}}, StridedCopy(wanted, strides, desc(result).get_strides(),
                                                    SizeOf(values_[source].dtype)));
  return result;
}

int PlanBuilder::Concat(const std::vector<int>& sources, int axis) {
  const DType dtype = values_[sources.at(0)].dtype;
  const WorkScope work(*this,
                       ElementwiseWork(shape(sources[0])) * static_cast<double>(sources.size()));
  const auto along = static_cast<std::size_t>(axis);
  Dims out = shape(sources[0]);
  out[along] = 0;
  for (const int source : sources) out[along] += shape(source)[along];
  const bool strided = std::all_of(sources.begin(), sources.end(),
                                   [&](int source) { return IsStrided(desc(source)); });
  if (!strided && Computable(dtype)) return ConcatPrimitive(sources, axis, Desc());

  // The largest source decides the layout.
  std::vector<int> inputs;
  for (const int source : sources) {
    inputs.push_back(IsStrided(desc(source)) ? source : RowMajorOf(source));
  }
  const int largest = *std::max_element(inputs.begin(), inputs.end(), [&](int a, int b) {
    return ElementCount(shape(a)) < ElementCount(shape(b));
  });
  const Desc model = desc(largest);
  const bool alike = std::all_of(inputs.begin(), inputs.end(), [&](int input) {
    return desc(input) == InOrderOf(model, shape(input));
  });
  const Desc whole = WithPlainUnits(InOrderOf(model, out));
  if (alike && CanJoin(inputs, axis, whole)) return Join(inputs, whole);
  if (alike && Computable(dtype)) return ConcatPrimitive(inputs, axis, InOrderOf(model, out));
  const int result = NewValue(InOrderOf(model, out), dtype);
  Dims begin(out.size(), 0);
  for (const int input : inputs) {
    const int part = Slice(result, begin, shape(input), Dims(out.size(), 1));
    AddKernel({{0, input}, {1, part}}, StridedCopy(shape(input), desc(input).get_strides(),
                                                   desc(part).get_strides(), SizeOf(dtype)));
    begin[along] += shape(input)[along];
  }
  return result;
}

std::vector<int> PlanBuilder::Shuffle(int a, int b, bool halves) {
  const Dims dims = shape(a);
  const Desc last = ChannelsLast(dims, dnnl::memory::data_type::f32);
  if (!HasPixels(a)) a = InLayout(a, last);
  if (!HasPixels(b)) b = InLayout(b, last);
  Dims whole = dims;
  whole[1] *= 2;
  const WorkScope work(*this, ElementwiseWork(whole));
  const auto size = [](Dims::value_type side) { return static_cast<std::size_t>(side); };
  const ShuffleShape made{size(ElementCount(dims) / dims[1]), size(dims[1]),
                          size(PixelStride(desc(a))), size(PixelStride(desc(b))), halves};
  std::vector<int> results;
  if (halves) {
    results = {NewValue(last, DType::kFloat32), NewValue(last, DType::kFloat32)};
  } else {
    results = {NewValue(ChannelsLast(whole, dnnl::memory::data_type::f32), DType::kFloat32)};
  }
  Arguments arguments = {{0, a}, {0, b}};
  for (const int result : results) arguments.emplace_back(0, result);
  AddKernel(std::move(arguments), ShuffleKernel(made));
  return results;
}

int PlanBuilder::Room(const Dims& shape) {
  return NewValue(ChannelsLast(shape, dnnl::memory::data_type::f32), DType::kFloat32);
}

void PlanBuilder::CopyInto(int source, int part) {
  const int from = IsStrided(desc(source)) ? source : RowMajorOf(source);
  const WorkScope work(*this, ElementwiseWork(shape(from)));
  AddKernel({{0, from}, {1, part}},
            StridedCopy(shape(from), desc(from).get_strides(), desc(part).get_strides(),
                        SizeOf(values_[from].dtype)));
}

// Parts that lie one after the other in the result need no copy: whoever makes them writes there.
bool PlanBuilder::CanJoin(const std::vector<int>& sources, int axis, const Desc& whole) const {
  const Dims out = whole.get_dims(), strides = whole.get_strides();
  for (std::size_t i = 0; i < out.size(); ++i) {
    const bool inside = out[i] == 1 || strides[i] < strides[static_cast<std::size_t>(axis)];
    if (static_cast<int>(i) != axis && !inside) return false;
  }
  std::vector<int> storages;
  for (const int source : sources) {
    if (!IsDense(desc(source)) || !CanOverwrite(source)) return false;
    storages.push_back(StorageOf(source));
  }
  std::sort(storages.begin(), storages.end());
  return std::adjacent_find(storages.begin(), storages.end()) == storages.end();
}

int PlanBuilder::Join(const std::vector<int>& sources, const Desc& whole) {
  const int result = NewValue(whole, values_[sources[0]].dtype);
  const int joined = StorageOf(result);
  std::size_t offset = 0;
  for (const int source : sources) {
    const int from = StorageOf(source);
    Storage& part = storages_[from];
    Joined record{{}, from, offset, part.first_step, part.last_step};
    for (std::size_t i = 0; i < values_.size(); ++i) {
      if (values_[i].storage != from) continue;
      values_[i].storage = joined;
      values_[i].offset += offset;
      record.values.push_back(static_cast<int>(i));
    }
    storages_[joined].first_step = std::min(storages_[joined].first_step, part.first_step);
    storages_[joined].last_step = std::max(storages_[joined].last_step, part.last_step);
    part.first_step = INT_MAX;
    part.last_step = -1;
    joined_.push_back(std::move(record));
    offset += part.bytes;
  }
  return result;
}

int PlanBuilder::ConcatPrimitive(const std::vector<int>& sources, int axis, const Desc& layout) {
  std::vector<Desc> descs;
  Arguments arguments;
  for (const int source : sources) {
    const int input = CompactOf(source);
    descs.push_back(desc(input));
    arguments.emplace_back(DNNL_ARG_MULTIPLE_SRC + static_cast<int>(arguments.size()), input);
  }
  const auto attributes = PlainAttributes();
  const auto pd = layout.get_ndims() > 0
                      ? dnnl::concat::primitive_desc(engine_, layout, axis, descs, attributes)
                      : dnnl::concat::primitive_desc(engine_, axis, descs, attributes);
  const int result = NewValue(pd.dst_desc(), DType::kFloat32);
  arguments.emplace_back(DNNL_ARG_DST, result);
  AddPrimitive(pd, std::move(arguments));
  return result;
}

namespace {

// Copies row ids[i] of a table to row i of the result; raises where Paddle raises.
template <typename Id>
Kernel GatherRows(std::size_t count, std::size_t row_bytes, std::size_t table_rows,
                  long long padding_index) {
  return [=](void* const* pointers) {
    const auto* ids = static_cast<const Id*>(pointers[0]);
    const auto* table = static_cast<const char*>(pointers[1]);
    auto* result = static_cast<char*>(pointers[2]);
    for (std::size_t i = 0; i < count; ++i) {
      if (padding_index >= 0 && ids[i] == padding_index) {
        std::memset(result + i * row_bytes, 0, row_bytes);
        continue;
      }
      if (ids[i] < 0 || static_cast<std::size_t>(ids[i]) >= table_rows) {
        throw std::out_of_range("embedding: id " + std::to_string(ids[i]) + " is not in [0, " +
                                std::to_string(table_rows) + ")");
      }
      std::memcpy(result + i * row_bytes, table + static_cast<std::size_t>(ids[i]) * row_bytes,
                  row_bytes);
    }
  };
}

}  // namespace

int PlanBuilder::Embedding(int ids, int table, long long padding_index) {
  ids = RowMajorOf(ids);
  table = RowMajorOf(table);
  Dims out = shape(ids);
  const auto count = static_cast<std::size_t>(ElementCount(out));
  out.push_back(shape(table).back());
  const DType dtype = values_[table].dtype;
  const auto rows = static_cast<std::size_t>(shape(table)[0]);
  const std::size_t row_bytes = static_cast<std::size_t>(out.back()) * SizeOf(dtype);
  const int result = NewValue(RowMajor(out, dtype), dtype);
  const bool wide = values_[ids].dtype == DType::kInt64;
  if (!wide && values_[ids].dtype != DType::kInt32) {
    throw std::invalid_argument("embedding ids must be int64 or int32");
  }
  AddKernel({{0, ids}, {1, table}, {2, result}},
            wide ? GatherRows<std::int64_t>(count, row_bytes, rows, padding_index)
                 : GatherRows<std::int32_t>(count, row_bytes, rows, padding_index));
  return result;
}

}  // namespace pfb
