// Softmax, layer and batch normalisation, reductions.
#include <algorithm>
#include <numeric>

#include "builder.h"
#include "reduce.h"

namespace pfb {

using dnnl::algorithm;
using dnnl::normalization_flags;
using dnnl::prop_kind;

int PlanBuilder::Softmax(int source, int axis, bool log) {
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
