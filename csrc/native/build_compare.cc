// Comparison, logic, selection and whole numbers: loops of our own (compare.h).
#include <stdexcept>
#include <string>

#include "broadcast.h"
#include "builder.h"
#include "compare.h"

namespace pfb {

// `value` with leading ones up to the rank of the result, in a layout with strides.
int PlanBuilder::Broadcastable(int value, const Dims& out_shape) {
  if (!IsStrided(desc(value))) value = RowMajorOf(value);
  Dims padded = shape(value);
  padded.insert(padded.begin(), out_shape.size() - padded.size(), 1);
  return Reshape(value, padded);
}

int PlanBuilder::Compare(const std::string& kind, int a, int b, const Dims& out_shape) {
  const WorkScope work(*this, ElementwiseWork(out_shape));
  a = Broadcastable(a, out_shape);
  b = Broadcastable(b, out_shape);
  const DType dtype = values_[a].dtype;
  if (values_[b].dtype != dtype) throw std::invalid_argument("a comparison of different types");
  const Desc out = RowMajor(out_shape, DType::kBool);
  const int result = NewValue(out, DType::kBool);
  AddKernel({{0, a}, {1, b}, {2, result}},
            CompareKernel(kind, dtype, out_shape, BroadcastStrides(desc(a), out_shape),
                          BroadcastStrides(desc(b), out_shape), out.get_strides()));
  return result;
}

int PlanBuilder::IntegerBinary(const std::string& kind, int a, int b, const Dims& out_shape) {
  const WorkScope work(*this, ElementwiseWork(out_shape));
  a = Broadcastable(a, out_shape);
  b = Broadcastable(b, out_shape);
  const DType dtype = values_[a].dtype;
  if (values_[b].dtype != dtype) throw std::invalid_argument("arithmetic of different types");
  const Desc out = RowMajor(out_shape, dtype);
  const int result = NewValue(out, dtype);
  AddKernel({{0, a}, {1, b}, {2, result}},
            IntegerKernel(kind, dtype, out_shape, BroadcastStrides(desc(a), out_shape),
                          BroadcastStrides(desc(b), out_shape), out.get_strides()));
  return result;
}

int PlanBuilder::Select(int condition, int x, int y, const Dims& out_shape) {
  const WorkScope work(*this, ElementwiseWork(out_shape));
  condition = Broadcastable(condition, out_shape);
  x = Broadcastable(x, out_shape);
  y = Broadcastable(y, out_shape);
  const DType dtype = values_[x].dtype;
  if (values_[condition].dtype != DType::kBool || values_[y].dtype != dtype) {
    throw std::invalid_argument("a selection by something else than bool, or of different types");
  }
  // In the layout of x where that has the full shape: channels that are last stay last.
  const Desc out = shape(x) == out_shape ? Compact(desc(x)) : RowMajor(out_shape, dtype);
  const int result = NewValue(out, dtype);
  AddKernel({{0, condition}, {1, x}, {2, y}, {3, result}},
            SelectKernel(SizeOf(dtype), out_shape, BroadcastStrides(desc(condition), out_shape),
                         BroadcastStrides(desc(x), out_shape), BroadcastStrides(desc(y), out_shape),
                         out.get_strides()));
  return result;
}

}  // namespace pfb
