// Softmax, layer and batch normalisation, reductions.
#include <stdexcept>

#include "builder.h"

namespace pfb {

using dnnl::algorithm;
using dnnl::normalization_flags;
using dnnl::prop_kind;

int PlanBuilder::Softmax(int source, int axis, bool log) {
  const int input = CompactOf(source);
  const dnnl::softmax_forward::primitive_desc pd(
      engine_, prop_kind::forward_inference,
      log ? algorithm::softmax_log : algorithm::softmax_accurate, desc(input), desc(input), axis,
      Attributes({}, shape(input)));
  const int result = NewValue(pd.dst_desc(), DType::kFloat32);
  AddPrimitive(pd, {{DNNL_ARG_SRC, input}, {DNNL_ARG_DST, result}});
  return result;
}

int PlanBuilder::LayerNorm(int source, int scale, int shift, float epsilon) {
  const int input = RowMajorOf(source);
  auto flags = normalization_flags::none;
  if (scale >= 0) flags |= normalization_flags::use_scale;
  if (shift >= 0) flags |= normalization_flags::use_shift;
  const dnnl::layer_normalization_forward::primitive_desc pd(engine_, prop_kind::forward_inference,
                                                             desc(input), desc(input), epsilon,
                                                             flags, Attributes({}, shape(input)));
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
  auto flags = normalization_flags::use_global_stats;
  if (scale >= 0) flags |= normalization_flags::use_scale;
  if (shift >= 0) flags |= normalization_flags::use_shift;
  const dnnl::batch_normalization_forward::primitive_desc pd(engine_, prop_kind::forward_inference,
                                                             desc(input), desc(input), epsilon,
                                                             flags, Attributes({}, shape(input)));
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

int PlanBuilder::Reduce(int source, const std::string& kind, const std::vector<int>& axes) {
  const int input = CompactOf(source);
  Dims out = shape(input);
  for (const int axis : axes) out.at(static_cast<std::size_t>(axis)) = 1;
  const auto how = kind == "mean"  ? algorithm::reduction_mean
                   : kind == "sum" ? algorithm::reduction_sum
                   : kind == "max" ? algorithm::reduction_max
                   : kind == "min" ? algorithm::reduction_min
                                   : algorithm::undef;
  if (how == algorithm::undef) throw std::invalid_argument("no reduction '" + kind + "'");
  const dnnl::reduction::primitive_desc pd(engine_, how, desc(input), AnyLayout(out), 0.0F, 0.0F,
                                           Attributes({}, out));
  const int result = NewValue(pd.dst_desc(), DType::kFloat32);
  AddPrimitive(pd, {{DNNL_ARG_SRC, input}, {DNNL_ARG_DST, result}});
  return result;
}

}  // namespace pfb
