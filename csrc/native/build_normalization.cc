// Softmax, layer and batch normalisation, reductions.
#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "builder.h"
#include "reduce.h"
#include "row_norm.h"
#include "simd.h"
#include "softmax.h"

namespace pfb {

using dnnl::algorithm;
using dnnl::normalization_flags;
using dnnl::prop_kind;

int PlanBuilder::Softmax(int source, int axis, bool log) {
  if (!log && IsPlaneSoftmax(source, axis)) return PlaneSoftmax(source, axis);
  const int input = CompactOf(source);
  const WorkScope work(*this, ElementwiseWork(shape(input)));
  const dnnl::softmax_forward::primitive_desc pd(
      engine_, prop_kind::forward_inference,
      log ? algorithm::softmax_log : algorithm::softmax_accurate, desc(input), desc(input), axis,
      PlainAttributes());
  const int result = NewValue(pd.dst_desc(), DType::kFloat32);
  AddPrimitive(pd, {{DNNL_ARG_SRC, input}, {DNNL_ARG_DST, result}});
  return result;
}

// Over planes, or over so few channels side by side that oneDNN's loop over them is slow (seven
// times ours, with 4): those become planes first.
bool PlanBuilder::IsPlaneSoftmax(int source, int axis) const {
  const Desc& layout = desc(source);
  const Dims dims = layout.get_dims();
  if (!PlaneSoftmaxSupported() || !IsStrided(layout)) return false;
  Dims::value_type pixels = 1;
  for (std::size_t i = static_cast<std::size_t>(axis) + 1; i < dims.size(); ++i) pixels *= dims[i];
  constexpr Dims::value_type kFewChannels = 32;
  const auto channels = dims[static_cast<std::size_t>(axis)];
  return pixels >= kLanes && (IsRowMajor(layout) || channels <= kFewChannels);
}

int PlanBuilder::PlaneSoftmax(int source, int axis) {
  const int input = RowMajorOf(source);
  const Dims dims = shape(input);
  const WorkScope work(*this, ElementwiseWork(dims));
  const auto at = static_cast<std::size_t>(axis);
  std::size_t outer = 1;
  for (std::size_t i = 0; i < at; ++i) outer *= static_cast<std::size_t>(dims[i]);
  const auto planes = static_cast<std::size_t>(dims[at]);
  const std::size_t pixels = static_cast<std::size_t>(ElementCount(dims)) / (outer * planes);
  const int result = NewValue(RowMajor(dims, DType::kFloat32), DType::kFloat32);
  AddKernel({{0, input}, {1, result}}, PlaneSoftmaxKernel(outer, planes, pixels));
  return result;
}

int PlanBuilder::LayerNorm(int source, int scale, int shift, float epsilon) {
  const int input = RowMajorOf(source);
  const WorkScope work(*this, ElementwiseWork(shape(input)));
  auto flags = normalization_flags::none;
  if (scale >= 0) flags |= normalization_flags::use_scale;
  if (shift >= 0) flags |= normalization_flags::use_shift;
  const dnnl::layer_normalization_forward::primitive_desc pd(engine_, prop_kind::forward_inference,
                                                             desc(input), desc(input), epsilon,
                                                             flags, PlainAttributes());
  Arguments arguments = {{DNNL_ARG_SRC, input}};
  if (scale >= 0) arguments.emplace_back(DNNL_ARG_SCALE, PlainVector(scale));
  if (shift >= 0) arguments.emplace_back(DNNL_ARG_SHIFT, PlainVector(shift));
  const int result = NewValue(pd.dst_desc(), DType::kFloat32);
  arguments.emplace_back(DNNL_ARG_DST, result);
  AddPrimitive(pd, std::move(arguments));
  return result;
}

int PlanBuilder::BatchNorm(int source, int mean, int variance, int scale, int shift,
                           float epsilon) {
  const int input = CompactOf(source);
  const WorkScope work(*this, ElementwiseWork(shape(input)));
  auto flags = normalization_flags::use_global_stats;
  if (scale >= 0) flags |= normalization_flags::use_scale;
  if (shift >= 0) flags |= normalization_flags::use_shift;
  const dnnl::batch_normalization_forward::primitive_desc pd(engine_, prop_kind::forward_inference,
                                                             desc(input), desc(input), epsilon,
                                                             flags, PlainAttributes());
  Arguments arguments = {{DNNL_ARG_SRC, input},
                         {DNNL_ARG_MEAN, PlainVector(mean)},
                         {DNNL_ARG_VARIANCE, PlainVector(variance)}};
  if (scale >= 0) arguments.emplace_back(DNNL_ARG_SCALE, PlainVector(scale));
  if (shift >= 0) arguments.emplace_back(DNNL_ARG_SHIFT, PlainVector(shift));
  const int result = NewValue(pd.dst_desc(), DType::kFloat32);
  arguments.emplace_back(DNNL_ARG_DST, result);
  AddPrimitive(pd, std::move(arguments));
  return result;
}

int PlanBuilder::RmsNorm(int source, int scale, float epsilon) {
  const int input = RowMajorOf(source);
  const Dims dims = shape(input);
  const WorkScope work(*this, ElementwiseWork(dims));
  const auto columns = static_cast<std::size_t>(dims.back());
  const auto rows = static_cast<std::size_t>(ElementCount(dims)) / columns;
  const int result = NewValue(RowMajor(dims, DType::kFloat32), DType::kFloat32);
  Arguments arguments = {{0, input}, {1, result}};
  if (scale >= 0) arguments.emplace_back(2, PlainVector(scale));
  AddKernel(std::move(arguments), RmsNormKernel(rows, columns, epsilon, scale >= 0));
  return result;
}

std::vector<int> PlanBuilder::EmbeddingNorm(const EmbeddingNormSpec& spec) {
  const WorkScope work(*this, ElementwiseWork(spec.out_shape));
  EmbeddingNormShape made{};
  made.columns = static_cast<std::size_t>(spec.out_shape.back());
  made.rows = static_cast<std::size_t>(ElementCount(spec.out_shape)) / made.columns;
  made.epsilon = spec.epsilon;
  made.scaled = spec.scale >= 0;
  made.shifted = spec.shift >= 0;
  made.keeps_sum = spec.keep_sum;
  const Desc out = RowMajor(spec.out_shape, DType::kFloat32);
  std::vector<int> results = {NewValue(out, DType::kFloat32)};
  Arguments arguments = {{0, results[0]}};
  for (std::size_t t = 0; t < spec.tables.size(); ++t) {
    const DType dtype = values_[spec.ids[t]].dtype;
    if (dtype != DType::kInt64 && dtype != DType::kInt32) {
      throw std::invalid_argument("embedding ids must be int64 or int32");
    }
    made.wide.push_back(dtype == DType::kInt64);
    made.table_rows.push_back(static_cast<std::size_t>(shape(spec.tables[t])[0]));
    arguments.emplace_back(0, RowMajorOf(spec.ids[t]));
    arguments.emplace_back(0, RowMajorOf(spec.tables[t]));
  }
  for (const int addend : spec.addends) {
    made.dense_rows.push_back(static_cast<std::size_t>(ElementCount(shape(addend))) / made.columns);
    arguments.emplace_back(0, RowMajorOf(addend));
  }
  if (made.scaled) arguments.emplace_back(0, PlainVector(spec.scale));
  if (made.shifted) arguments.emplace_back(0, PlainVector(spec.shift));
  if (made.keeps_sum) {
    results.push_back(NewValue(out, DType::kFloat32));
    arguments.emplace_back(0, results[1]);
  }
  AddKernel(std::move(arguments), EmbeddingNormKernel(std::move(made)));
  return results;
}

int PlanBuilder::GroupNorm(int source, int scale, int shift, int groups, float epsilon) {
  const Dims dims = shape(source);
  const Desc last = ChannelsLast(dims, dnnl::memory::data_type::f32);
  const bool channels_last = desc(source) == last && !IsRowMajor(desc(source));
  const int input = channels_last ? source : RowMajorOf(source);
  const WorkScope work(*this, ElementwiseWork(dims));
  GroupNormShape made{};
  made.batch = static_cast<std::size_t>(dims[0]);
  made.channels = static_cast<std::size_t>(dims[1]);
  made.pixels = static_cast<std::size_t>(ElementCount(dims) / (dims[0] * dims[1]));
  made.groups = static_cast<std::size_t>(groups);
  made.channels_last = channels_last;
  made.scaled = scale >= 0;
  made.shifted = shift >= 0;
  made.epsilon = epsilon;
  // Not as many as threads: the result must not depend on their number.
  constexpr std::size_t kChunks = 16;
  made.chunks = std::min(kChunks, made.pixels);
  const int result = NewValue(desc(input), DType::kFloat32);
  const Dims work_shape = {static_cast<Dims::value_type>(made.work())};
  const int memory = NewValue(RowMajor(work_shape, DType::kFloat32), DType::kFloat32);
  Arguments arguments = {{0, input}, {1, result}, {2, memory}};
  if (made.scaled) arguments.emplace_back(3, PlainVector(scale));
  if (made.shifted) arguments.emplace_back(4, PlainVector(shift));
  AddKernel(std::move(arguments), GroupNormKernel(made));
  return result;
}

int PlanBuilder::PRelu(int source, int slopes) {
  const int input = CompactOf(source);
  const Dims dims = shape(input);
  const WorkScope work(*this, ElementwiseWork(dims));
  Dims per_channel(dims.size(), 1);
  if (dims.size() > 1) per_channel[1] = ElementCount(shape(slopes));
  const int weights = Reshape(RowMajorOf(slopes), per_channel);
  const dnnl::prelu_forward::primitive_desc pd(engine_, prop_kind::forward_inference, desc(input),
                                               AnyLayout(per_channel), desc(input),
                                               PlainAttributes());
  const int result = NewValue(pd.dst_desc(), DType::kFloat32);
  AddPrimitive(pd, {{DNNL_ARG_SRC, input},
                    {DNNL_ARG_WEIGHTS, InLayout(weights, pd.weights_desc())},
                    {DNNL_ARG_DST, result}});
  return result;
}

// Axes that are not neighbours are moved to the end first.
int PlanBuilder::Reduce(int source, const std::string& kind, std::vector<int> axes) {
  std::sort(axes.begin(), axes.end());
  const Dims full = shape(source);
  Dims out = full;
  for (const int axis : axes) out.at(static_cast<std::size_t>(axis)) = 1;
  const auto first = static_cast<std::size_t>(axes.front());
  const auto last = static_cast<std::size_t>(axes.back());
  const auto count = [](const Dims& dims, std::size_t begin, std::size_t end) {
    return static_cast<std::size_t>(std::accumulate(dims.begin() + static_cast<long>(begin),
                                                    dims.begin() + static_cast<long>(end), 1LL,
                                                    std::multiplies<>()));
  };
  std::size_t outer = count(full, 0, first);
  std::size_t reduced = count(full, first, last + 1);
  std::size_t inner = count(full, last + 1, full.size());
  if (last - first + 1 != axes.size()) {
    std::vector<int> permutation;
    for (int i = 0; i < static_cast<int>(full.size()); ++i) {
      if (!std::binary_search(axes.begin(), axes.end(), i)) permutation.push_back(i);
    }
    permutation.insert(permutation.end(), axes.begin(), axes.end());
    source = Permute(source, permutation);
    outer = static_cast<std::size_t>(ElementCount(out));
    reduced = static_cast<std::size_t>(ElementCount(full)) / outer;
    inner = 1;
  }
  const int input = RowMajorOf(source);
  const WorkScope work(*this, ElementwiseWork(shape(input)));
  const int result = NewValue(RowMajor(out, DType::kFloat32), DType::kFloat32);
  AddKernel({{0, input}, {1, result}}, ReduceKernel(kind, outer, reduced, inner));
  return result;
}

}  // namespace pfb
