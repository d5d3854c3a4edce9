#include "dtype.h"

#include <array>
#include <stdexcept>

namespace pfb {
namespace {

struct Row {
  DType dtype;
  const char* name;
  std::size_t size;
  dnnl::memory::data_type carrier;
};

using dt = dnnl::memory::data_type;
constexpr std::array<Row, 10> kRows = {{
    {DType::kFloat32, "float32", 4, dt::f32},
    {DType::kFloat16, "float16", 2, dt::f16},
    {DType::kBFloat16, "bfloat16", 2, dt::bf16},
    {DType::kFloat64, "float64", 8, dt::f64},
    {DType::kInt64, "int64", 8, dt::f64},
    {DType::kInt32, "int32", 4, dt::s32},
    {DType::kInt16, "int16", 2, dt::f16},
    {DType::kInt8, "int8", 1, dt::s8},
    {DType::kUInt8, "uint8", 1, dt::u8},
    {DType::kBool, "bool", 1, dt::u8},
}};

const Row& Find(DType dtype) {
  for (const Row& row : kRows) {
    if (row.dtype == dtype) return row;
  }
  throw std::logic_error("element type without a row in the table");
}

}  // namespace

DType ParseDType(const std::string& name) {
  for (const Row& row : kRows) {
    if (name == row.name) return row.dtype;
  }
  throw std::invalid_argument("the native engine has no element type '" + name + "'");
}

const char* Name(DType dtype) { return Find(dtype).name; }
std::size_t SizeOf(DType dtype) { return Find(dtype).size; }
dnnl::memory::data_type Carrier(DType dtype) { return Find(dtype).carrier; }

}  // namespace pfb
