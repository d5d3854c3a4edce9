// Matrix products: with constant weights as one flat product, otherwise batched on strides.
#include <algorithm>
#include <stdexcept>

#include "builder.h"

namespace pfb {
namespace {

// Leading ones until the shape has `rank` dimensions.
Dims Padded(Dims shape, std::size_t rank) {
  shape.insert(shape.begin(), rank - shape.size(), 1);
  return shape;
}

// Whether oneDNN 3.6 multiplies matrices in this layout, fast and right: one of the last two
// dimensions is contiguous, the first one is outermost in memory.  So heads may lie inside or
// outside of the sequence, but batches are not interleaved, which it gets wrong.
bool IsMatrixLayout(const Desc& desc) {
  if (!IsStrided(desc) || desc.get_ndims() > 4) return false;
  const Dims shape = desc.get_dims();
  const Dims strides = desc.get_strides();
  const std::size_t last = shape.size() - 1;
  const bool contiguous =
      shape[last] > 1 && (strides[last] == 1 || (shape[last - 1] > 1 && strides[last - 1] == 1));
  for (std::size_t i = 1; i < shape.size() && last > 1 && shape[0] > 1; ++i) {
    if (strides[0] < strides[i] * shape[i]) return false;
  }
  return contiguous;
}

}  // namespace

int PlanBuilder::MatMul(int a, int b, int bias, const PostOps& post_ops) {
  const bool flat = IsConstant(b) && shape(b).size() == 2 && shape(a).size() >= 2;
  return flat ? Flattened(a, b, bias, post_ops) : Batched(a, b, bias, post_ops);
}

// [..., K] x [K, N] is one product of all rows; post-op operands are flattened with it.
int PlanBuilder::Flattened(int a, int b, int bias, const PostOps& post_ops) {
  Dims out = shape(a);
  out.back() = shape(b)[1];
  const auto rows = static_cast<dnnl::memory::dim>(ElementCount(shape(a)) / shape(a).back());
  PostOps flat_ops = post_ops;
  for (PostOp& op : flat_ops) {
    if (op.value < 0) continue;
    const Dims operand = shape(op.value);
    if (operand == out) {
      op.value = Reshape(op.value, {rows, out.back()});
    } else if (ElementCount(operand) == operand.back()) {
      op.value = Reshape(op.value, {1, operand.back()});
    } else {
      return Batched(a, b, bias, post_ops);
    }
  }
  const int flat = Reshape(RowMajorOf(a), {rows, shape(a).back()});
  return Reshape(Batched(flat, b, bias, flat_ops), out);
}

int PlanBuilder::Batched(int a, int b, int bias, const PostOps& post_ops, const Desc& layout,
                         int target) {
  const std::size_t rank = std::max(shape(a).size(), shape(b).size());
  a = Reshape(a, Padded(shape(a), rank));
  b = Reshape(b, Padded(shape(b), rank));
  Dims out = shape(a);
  for (std::size_t i = 0; i + 2 < rank; ++i) out[i] = std::max(out[i], shape(b)[i]);
  out.back() = shape(b).back();
  const auto readable = [&](int operand) {
    if (IsRowMajor(desc(operand)) || !IsMatrixLayout(desc(operand))) return RowMajorOf(operand);
    return operand;
  };
  a = readable(a);
  if (!IsConstant(b)) b = readable(b);
  auto [ops, separate] = SplitFusable(post_ops);
  for (PostOp& op : ops) {
    if (op.value >= 0) op.value = Reshape(op.value, Padded(shape(op.value), rank));
  }
  // oneDNN 3.6 reads memory it was not given in batched products over one element.
  if (shape(a).back() == 1 && bias < 0 && !IsConstant(b)) {
    return Binary("mul", a, b, out, post_ops);
  }
  const WorkScope work(
      *this, 2.0 * static_cast<double>(ElementCount(out)) * static_cast<double>(shape(a).back()));
  Dims bias_shape(rank, 1);
  bias_shape.back() = out.back();
  const Desc bias_desc = bias < 0 ? Desc() : RowMajor(bias_shape, dnnl::memory::data_type::f32);
  const Desc out_desc = target >= 0              ? desc(target)
                        : layout.get_ndims() > 0 ? layout
                                                 : RowMajor(out, DType::kFloat32);
  const auto describe = [&](const PostOps& chain) {
    const Desc weights = IsConstant(b) ? AnyLayout(shape(b)) : desc(b);
    const auto attributes = Attributes(chain, out_desc);
    return bias < 0 ? dnnl::matmul::primitive_desc(engine_, desc(a), weights, out_desc, attributes)
                    : dnnl::matmul::primitive_desc(engine_, desc(a), weights, bias_desc, out_desc,
                                                   attributes);
  };
  auto pd = describe(ops);
  if (IsReference(pd.impl_info_str())) {
    a = RowMajorOf(a);
    if (!IsConstant(b)) b = RowMajorOf(b);
    pd = describe(ops);
  }
  if (IsReference(pd.impl_info_str()) && !ops.empty()) {
    separate = post_ops;
    ops.clear();
    pd = describe(ops);
  }
  Arguments arguments = {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, InLayout(b, pd.weights_desc())}};
  if (bias >= 0) arguments.emplace_back(DNNL_ARG_BIAS, Reshape(RowMajorOf(bias), bias_shape));
  int result = target >= 0 ? target : SumTarget(ops, pd.dst_desc());
  AppendPostOpArguments(ops, pd.dst_desc(), arguments);
  if (result < 0) result = NewValue(pd.dst_desc(), DType::kFloat32);
  arguments.emplace_back(DNNL_ARG_DST, result);
  AddPrimitive(pd, std::move(arguments));
  return ApplySeparately(result, separate);
}

}  // namespace pfb
