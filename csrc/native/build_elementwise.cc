// Elementwise functions and binary operations with broadcast.
#include <stdexcept>

#include "broadcast.h"
#include "builder.h"
#include "cast.h"

namespace pfb {
int PlanBuilder::Eltwise(int source, const PostOps& functions) {
  int value = CompactOf(source);
  bool own = false;  // whether `value` was made here and may be overwritten
  for (const PostOp& function : functions) {
    const dnnl::eltwise_forward::primitive_desc pd(
        engine_, dnnl::prop_kind::forward_inference, EltwiseAlgorithm(function.kind), desc(value),
        desc(value), function.alpha, function.beta, Attributes({}, shape(value)));
    const int result = own ? value : NewValue(pd.dst_desc(), DType::kFloat32);
    AddPrimitive(pd, {{DNNL_ARG_SRC, value}, {DNNL_ARG_DST, result}});
    value = result;
    own = true;
  }
  return value;
}

int PlanBuilder::Binary(const std::string& kind, int a, int b, const Dims& out_shape,
                        const PostOps& post_ops) {
  const dnnl::algorithm algorithm = BinaryAlgorithm(kind);
  const std::size_t rank = out_shape.size();
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
  const auto describe = [&](const PostOps& fused) {
    return dnnl::binary::primitive_desc(engine_, algorithm, desc(first), desc(second), desc(first),
                                        Attributes(fused, out_shape));
  };
  auto pd = describe(post_ops);
  PostOps separate;
  if (IsReference(pd.impl_info_str())) {
    separate = post_ops;
    pd = describe({});
  }
  if (IsReference(pd.impl_info_str()) && IsStrided(desc(first))) {
    return ApplySeparately(BroadcastBinary(kind, a, b, out_shape), post_ops);
  }
  const PostOps& fused = separate.empty() ? post_ops : PostOps{};
  Arguments arguments = {{DNNL_ARG_SRC_0, first}, {DNNL_ARG_SRC_1, second}};
  AppendPostOpArguments(fused, pd.get_primitive_attr(), arguments);
  int result = SumTarget(fused, pd.dst_desc());
  if (result < 0) result = NewValue(pd.dst_desc(), DType::kFloat32);
  arguments.emplace_back(DNNL_ARG_DST, result);
  AddPrimitive(pd, std::move(arguments));
  return ApplySeparately(result, separate);
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
