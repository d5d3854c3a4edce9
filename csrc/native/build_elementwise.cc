// Elementwise functions and binary operations with broadcast.
#include <limits>
#include <string>

#include "affine_rows.h"
#include "broadcast.h"
#include "builder.h"
#include "cast.h"
#include "parallel.h"

namespace pfb {
namespace {

// Functions that oneDNN's code turns NaN into a number for, and whether infinity into NaN.
bool LosesNaN(const std::string& kind) {
  return kind == "clip" || kind == "hardsigmoid" || kind == "exp" || kind == "gelu_erf";
}

// A kernel with arguments (source, result) that puts lost NaNs, and infinity where it is a fixed
// point of the function, back into the result.
Kernel RestoreNonFinite(std::size_t count, bool keeps_infinity) {
  return [=](void* const* pointers) {
    const auto* source = static_cast<const float*>(pointers[0]);
    auto* result = static_cast<float*>(pointers[1]);
    const float limit =
        keeps_infinity ? std::numeric_limits<float>::max() : std::numeric_limits<float>::infinity();
    ParallelFor(count, [=](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) {
        const bool lost = !(source[i] <= limit);
        result[i] = lost ? source[i] : result[i];
      }
    });
  };
}

}  // namespace

int PlanBuilder::Eltwise(int source, const PostOps& functions) {
  int value = CompactOf(source);
  const WorkScope work(*this, ElementwiseWork(shape(value)));
  bool own = false;  // whether `value` was made here and may be overwritten
  for (const PostOp& function : functions) {
    const bool restore = LosesNaN(function.kind);
    const dnnl::eltwise_forward::primitive_desc pd(
        engine_, dnnl::prop_kind::forward_inference, EltwiseAlgorithm(function.kind), desc(value),
        desc(value), function.alpha, function.beta, PlainAttributes());
    const int result = own && !restore ? value : NewValue(pd.dst_desc(), DType::kFloat32);
    AddPrimitive(pd, {{DNNL_ARG_SRC, value}, {DNNL_ARG_DST, result}});
    if (restore) {
      const std::size_t count = desc(value).get_size() / sizeof(float);
      AddKernel({{0, value}, {1, result}}, RestoreNonFinite(count, function.kind == "gelu_erf"));
    }
    value = result;
    own = true;
  }
  return value;
}

int PlanBuilder::Binary(const std::string& kind, int a, int b, const Dims& out_shape,
                        const PostOps& post_ops) {
  const dnnl::algorithm algorithm = BinaryAlgorithm(kind);
  const std::size_t rank = out_shape.size();
  const WorkScope work(*this, ElementwiseWork(out_shape));
  const auto padded = [&](int value) {
    Dims shape_in = shape(value);
    shape_in.insert(shape_in.begin(), rank - shape_in.size(), 1);
    return Reshape(value, shape_in);
  };
  a = padded(a);
  b = padded(b);
  const bool commutes = kind != "sub" && kind != "div";
  if (commutes && shape(a) != out_shape) std::swap(a, b);
  if (algorithm == dnnl::algorithm::undef || shape(a) != out_shape) {
    return ApplySeparately(BroadcastBinary(kind, a, b, out_shape), post_ops);
  }
  const int first = CompactOf(a);
  const bool full = shape(b) == out_shape;
  const int second = full ? InLayout(b, desc(first)) : RowMajorOf(b);
  const auto describe = [&](const PostOps& chain) {
    return dnnl::binary::primitive_desc(engine_, algorithm, desc(first), desc(second), desc(first),
                                        Attributes(chain, desc(first)));
  };
  auto [fused, separate] = SplitFusable(post_ops);
  auto pd = describe(fused);
  if (IsReference(pd.impl_info_str())) {
    separate = post_ops;
    fused.clear();
    pd = describe({});
  }
  if (IsReference(pd.impl_info_str()) && IsStrided(desc(first))) {
    return ApplySeparately(BroadcastBinary(kind, a, b, out_shape), post_ops);
  }
  Arguments arguments = {{DNNL_ARG_SRC_0, first}, {DNNL_ARG_SRC_1, second}};
  AppendPostOpArguments(fused, pd.dst_desc(), arguments);
  int result = SumTarget(fused, pd.dst_desc());
  if (result < 0) result = NewValue(pd.dst_desc(), DType::kFloat32);
  arguments.emplace_back(DNNL_ARG_DST, result);
  AddPrimitive(pd, std::move(arguments));
  return ApplySeparately(result, separate);
}

// Whether the channels of each pixel lie side by side and pixels at equal distances.
bool PlanBuilder::HasPixels(int value) const {
  const Desc& layout = desc(value);
  if (!IsStrided(layout) || values_[value].dtype != DType::kFloat32) return false;
  const Dims dims = layout.get_dims(), strides = layout.get_strides();
  if (dims.size() != 4 || (dims[1] > 1 && strides[1] != 1)) return false;
  auto expected = PixelStride(layout);
  if (expected < dims[1]) return false;
  for (const std::size_t i : {3, 2, 0}) {
    if (dims[i] != 1 && strides[i] != expected) return false;
    expected *= dims[i];
  }
  return true;
}

bool PlanBuilder::CanAffine(int source, const PostOps& function) const {
  return AffineRowsSupported() && settings_.channels_last && HasPixels(source) &&
         (function.empty() || (function.size() == 1 && AsActivation(function[0])));
}

int PlanBuilder::Affine(int source, int scale, int shift, const PostOps& function) {
  const Dims dims = shape(source);
  const WorkScope work(*this, ElementwiseWork(dims));
  const int result = NewValue(ChannelsLast(dims, dnnl::memory::data_type::f32), DType::kFloat32);
  const auto channels = static_cast<std::size_t>(dims[1]);
  const std::size_t pixels = static_cast<std::size_t>(ElementCount(dims)) / channels;
  const auto stride = static_cast<std::size_t>(PixelStride(desc(source)));
  const Activation activation = function.empty() ? Activation{} : *AsActivation(function[0]);
  AddKernel({{0, source}, {1, PlainVector(scale)}, {2, PlainVector(shift)}, {3, result}},
            [=](void* const* pointers) {
              const auto floats = [&](int at) { return static_cast<float*>(pointers[at]); };
              ParallelFor(pixels, [&](std::size_t begin, std::size_t end) {
                AffineRows(floats(0) + begin * stride, stride, end - begin, channels, floats(1),
                           floats(2), activation, floats(3) + begin * channels);
              });
            });
  return result;
}

int PlanBuilder::BroadcastBinary(const std::string& kind, int a, int b, const Dims& out_shape) {
  const auto strided = [&](int value) {
    return IsStrided(desc(value)) ? value : RowMajorOf(value);
  };
  a = strided(a);
  b = strided(b);
  const bool a_leads = shape(a) == out_shape;
  const Desc out = a_leads ? Compact(desc(a)) : RowMajor(out_shape, DType::kFloat32);
  const int result = NewValue(out, DType::kFloat32);
  AddKernel({{0, a}, {1, b}, {2, result}},
            BroadcastKernel(kind, out_shape, BroadcastStrides(desc(a), out_shape),
                            BroadcastStrides(desc(b), out_shape), out.get_strides()));
  return result;
}

int PlanBuilder::ApplySeparately(int value, const PostOps& post_ops) {
  for (const PostOp& op : post_ops) {
    if (op.kind == "sum") {
      value = Binary("add", value, op.value, shape(value), {});
    } else if (op.value >= 0) {
      value = Binary(op.kind, value, op.value, shape(value), {});
    } else {
      value = Eltwise(value, {op});
    }
  }
  return value;
}

int PlanBuilder::Cast(int source, DType dtype) {
  const DType from = values_[source].dtype;
  if (from == dtype) return source;
  const int input = RowMajorOf(source);
  const int result = NewValue(RowMajor(shape(input), dtype), dtype);
  AddKernel({{0, input}, {1, result}},
            CastKernel(from, dtype, static_cast<std::size_t>(ElementCount(shape(input)))));
  return result;
}

}  // namespace pfb
