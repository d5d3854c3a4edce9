// Convolution, transposed convolution, pooling and resampling.
#include <algorithm>
#include <stdexcept>
#include <utility>

#include "builder.h"
#include "windows.h"

namespace pfb {
namespace {

using dnnl::algorithm;
using dnnl::prop_kind;

// oneDNN counts dilation from 0, Paddle from 1.
Dims FromZero(Dims dilations) {
  for (auto& dilation : dilations) --dilation;
  return dilations;
}

Dims ConvolutionShape(const Dims& source, const Dims& weights, const ConvolutionSpec& spec) {
  Dims out = {source[0], weights[0]};
  for (std::size_t i = 0; i + 2 < source.size(); ++i) {
    const auto reach = (weights[i + 2] - 1) * spec.dilations[i] + 1;
    const auto padded = source[i + 2] + spec.pad_begin[i] + spec.pad_end[i];
    if (padded < reach) throw std::invalid_argument("a kernel is larger than its padded source");
    out.push_back((padded - reach) / spec.strides[i] + 1);
  }
  return out;
}

}  // namespace

Desc PlanBuilder::ConvolutionLayout(const Dims& shape) const {
  return settings_.channels_last ? ChannelsLast(shape, dnnl::memory::data_type::f32)
                                 : AnyLayout(shape);
}

// All images of `spec.sources` together.
Dims PlanBuilder::SourceShape(const ConvolutionSpec& spec) const {
  Dims whole = shape(spec.sources.at(0));
  whole[1] = 0;
  for (const int source : spec.sources) whole[1] += shape(source)[1];
  return whole;
}

int PlanBuilder::JoinedSource(const ConvolutionSpec& spec) {
  if (spec.sources.size() == 1) return spec.sources[0];
  const std::string name = std::exchange(step_name_, "concat");
  const int joined = Concat(spec.sources, 1);
  step_name_ = name;
  return joined;
}

int PlanBuilder::Convolution(const ConvolutionSpec& spec) {
  const Dims source = SourceShape(spec);
  const Dims plain_weights = shape(spec.weights);
  const Dims out = ConvolutionShape(source, plain_weights, spec);
  if (WinogradApplies(spec, out)) {
    const int tile = ChooseTile(spec, out);
    if (tile != 0) return Winograd(spec, out, tile);
  }
  const int joined = JoinedSource(spec);
  Dims weights = plain_weights;
  if (spec.groups > 1) {
    weights[0] /= spec.groups;
    weights.insert(weights.begin(), spec.groups);
  }
  const WorkScope work(*this, 2.0 * static_cast<double>(ElementCount(out)) *
                                  static_cast<double>(ElementCount(plain_weights) / out[1]));
  const Desc bias_desc = spec.bias < 0 ? Desc() : RowMajor({out[1]}, dnnl::memory::data_type::f32);
  const auto describe = [&](const PostOps& post_ops, const Desc& destination) {
    return dnnl::convolution_forward::primitive_desc(
        engine_, prop_kind::forward_inference, algorithm::convolution_direct,
        ConvolutionLayout(source), AnyLayout(weights), bias_desc, destination, spec.strides,
        FromZero(spec.dilations), spec.pad_begin, spec.pad_end, Attributes(post_ops, destination));
  };
  auto [fused, separate] = SplitFusable(spec.post_ops);
  Desc destination = ConvolutionLayout(out);
  // An operand as large as the result must be described in the layout of the result: ask first.
  if (HasFullOperand(fused, out)) destination = describe({}, destination).dst_desc();
  auto pd = describe(fused, destination);
  if (IsReference(pd.impl_info_str()) && !fused.empty()) {
    separate = spec.post_ops;
    fused.clear();
    pd = describe({}, ConvolutionLayout(out));
  }
  const int packed = InLayout(Reshape(spec.weights, weights), pd.weights_desc());
  Arguments arguments = {{DNNL_ARG_SRC, InLayout(joined, pd.src_desc())},
                         {DNNL_ARG_WEIGHTS, packed}};
  if (spec.bias >= 0) arguments.emplace_back(DNNL_ARG_BIAS, PlainVector(spec.bias));
  int result = SumTarget(fused, pd.dst_desc());
  AppendPostOpArguments(fused, pd.dst_desc(), arguments);
  if (result < 0) result = NewValue(pd.dst_desc(), DType::kFloat32);
  arguments.emplace_back(DNNL_ARG_DST, result);
  AddPrimitive(pd, std::move(arguments));
  return ApplySeparately(result, separate);
}

int PlanBuilder::Deconvolution(const ConvolutionSpec& spec, const Dims& out_shape) {
  const Dims source = SourceShape(spec);
  // Paddle keeps [in, out / groups, ...]; oneDNN wants [groups, out / groups, in / groups, ...].
  Dims split = shape(spec.weights);
  split[0] /= spec.groups;
  split.insert(split.begin(), spec.groups);
  std::vector<int> swap(split.size());
  for (std::size_t i = 0; i < swap.size(); ++i) swap[i] = static_cast<int>(i);
  std::swap(swap[1], swap[2]);
  int weights = Permute(Reshape(RowMajorOf(spec.weights), split), swap);
  Dims weights_shape = shape(weights);
  if (spec.groups == 1) {
    weights_shape.erase(weights_shape.begin());
    weights = Reshape(weights, weights_shape);
  }
  Dims pad_end;
  for (std::size_t i = 0; i + 2 < source.size(); ++i) {
    const auto reach =
        (weights_shape[weights_shape.size() - source.size() + i + 2] - 1) * spec.dilations[i] + 1;
    pad_end.push_back((source[i + 2] - 1) * spec.strides[i] + reach - spec.pad_begin[i] -
                      out_shape[i + 2]);
  }
  const Desc bias_desc =
      spec.bias < 0 ? Desc() : RowMajor({out_shape[1]}, dnnl::memory::data_type::f32);
  const dnnl::deconvolution_forward::primitive_desc pd(
      engine_, prop_kind::forward_inference, algorithm::deconvolution_direct,
      ConvolutionLayout(source), AnyLayout(weights_shape), bias_desc, ConvolutionLayout(out_shape),
      spec.strides, FromZero(spec.dilations), spec.pad_begin, pad_end, PlainAttributes());
  Arguments arguments = {{DNNL_ARG_SRC, InLayout(spec.sources[0], pd.src_desc())},
                         {DNNL_ARG_WEIGHTS, InLayout(weights, pd.weights_desc())}};
  if (spec.bias >= 0) arguments.emplace_back(DNNL_ARG_BIAS, PlainVector(spec.bias));
  const int result = NewValue(pd.dst_desc(), DType::kFloat32);
  arguments.emplace_back(DNNL_ARG_DST, result);
  AddPrimitive(pd, std::move(arguments));
  return ApplySeparately(result, spec.post_ops);
}

int PlanBuilder::Pool(int source, const std::string& kind, const Dims& kernel, const Dims& strides,
                      const Dims& pad_begin, const Dims& out_shape) {
  const auto how = kind == "max"                ? algorithm::pooling_max
                   : kind == "avg_with_padding" ? algorithm::pooling_avg_include_padding
                                                : algorithm::pooling_avg_exclude_padding;
  const int input = CompactOf(source);
  const Dims shape_in = shape(input);
  const WorkScope work(*this, ElementwiseWork(shape_in));
  Dims pad_end;
  for (std::size_t i = 0; i < kernel.size(); ++i) {
    const auto covered = (out_shape[i + 2] - 1) * strides[i] + kernel[i];
    pad_end.push_back(std::max<dnnl::memory::dim>(0, covered - shape_in[i + 2] - pad_begin[i]));
  }
  const Dims no_dilation(kernel.size(), 0);
  const dnnl::pooling_forward::primitive_desc pd(
      engine_, prop_kind::forward_inference, how, desc(input), AnyLayout(out_shape), strides,
      kernel, no_dilation, pad_begin, pad_end, PlainAttributes());
  const int result = NewValue(pd.dst_desc(), DType::kFloat32);
  AddPrimitive(pd, {{DNNL_ARG_SRC, input}, {DNNL_ARG_DST, result}});
  return result;
}

int PlanBuilder::Resize(int source, const std::string& kind, const Dims& out_shape) {
  const int input = CompactOf(source);
  const auto how = kind == "nearest" ? algorithm::resampling_nearest : algorithm::resampling_linear;
  const dnnl::resampling_forward::primitive_desc pd(engine_, prop_kind::forward_inference, how,
                                                    desc(input), AnyLayout(out_shape),
                                                    PlainAttributes());
  const int result = NewValue(pd.dst_desc(), DType::kFloat32);
  AddPrimitive(pd, {{DNNL_ARG_SRC, input}, {DNNL_ARG_DST, result}});
  return result;
}

int PlanBuilder::Windows(int source, const AxisWindows& vertical, const AxisWindows& horizontal,
                         bool maximum) {
  const Dims dims = shape(source);
  const Desc last = ChannelsLast(dims, dnnl::memory::data_type::f32);
  const bool channels_last = desc(source) == last && !IsRowMajor(desc(source));
  const int input = channels_last ? source : RowMajorOf(source);
  const auto size = [](Dims::value_type side) { return static_cast<std::size_t>(side); };
  WindowsShape made{size(channels_last ? dims[0] : dims[0] * dims[1]),
                    size(dims[2]),
                    size(dims[3]),
                    size(channels_last ? dims[1] : 1),
                    vertical,
                    horizontal,
                    maximum};
  const Dims out = {dims[0], dims[1], static_cast<Dims::value_type>(vertical.size()),
                    static_cast<Dims::value_type>(horizontal.size())};
  const WorkScope work(*this, ElementwiseWork(out));
  const auto f32 = dnnl::memory::data_type::f32;
  const int result =
      NewValue(channels_last ? ChannelsLast(out, f32) : RowMajor(out, f32), DType::kFloat32);
  AddKernel({{0, input}, {1, result}}, WindowsKernel(std::move(made)));
  return result;
}

}  // namespace pfb
