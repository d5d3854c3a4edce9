// Views, and the operations that only move elements.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#include "builder.h"
#include "strided_copy.h"

namespace pfb {

int PlanBuilder::Reshape(int value, const Dims& wanted) {
  if (shape(value) == wanted) return value;
  if (ElementCount(shape(value)) != ElementCount(wanted)) {
    throw std::invalid_argument("a reshape changes the number of elements");
  }
  if (IsRowMajor(desc(value))) return View(value, RowMajor(wanted, values_[value].dtype));
  if (IsStrided(desc(value))) {
    const Desc viewed = desc(value).reshape(wanted, /*allow_empty=*/true);
    if (viewed) return View(value, viewed);
  }
  return Reshape(RowMajorOf(value), wanted);
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
  if (Computable(dtype)) {
    std::vector<int> inputs;
    std::vector<Desc> descs;
    Arguments arguments;
    for (const int source : sources) {
      const int input = CompactOf(source);
      descs.push_back(desc(input));
      arguments.emplace_back(DNNL_ARG_MULTIPLE_SRC + static_cast<int>(arguments.size()), input);
    }
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::concat::primitive_desc pd(engine_, axis, descs, attributes);
    const int result = NewValue(pd.dst_desc(), dtype);
    arguments.emplace_back(DNNL_ARG_DST, result);
    AddPrimitive(pd, std::move(arguments));
    return result;
  }
  Dims out = shape(sources[0]);
  const auto along = static_cast<std::size_t>(axis);
  out[along] = 0;
  for (const int source : sources) out[along] += shape(source)[along];
  const int result = NewValue(RowMajor(out, dtype), dtype);
  Dims begin(out.size(), 0);
  for (const int source : sources) {
    const int part = Slice(result, begin, shape(source), Dims(out.size(), 1));
    AddKernel({{0, source}, {1, part}}, StridedCopy(shape(source), desc(source).get_strides(),
                                                    desc(part).get_strides(), SizeOf(dtype)));
    begin[along] += shape(source)[along];
  }
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
