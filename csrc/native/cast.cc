#include "cast.h"

#include <cstdint>
#include <stdexcept>
#include <string>

namespace pfb {
namespace {

template <typename From, typename To>
Kernel Convert(std::size_t count) {
  return [count](void* const* pointers) {
    const auto* source = static_cast<const From*>(pointers[0]);
    auto* result = static_cast<To*>(pointers[1]);
    for (std::size_t i = 0; i < count; ++i) result[i] = static_cast<To>(source[i]);
  };
}

template <typename From>
Kernel ConvertFrom(DType to, std::size_t count) {
  switch (to) {
    case DType::kFloat32:
      return Convert<From, float>(count);
    case DType::kFloat64:
      return Convert<From, double>(count);
    case DType::kInt64:
      return Convert<From, std::int64_t>(count);
    case DType::kInt32:
      return Convert<From, std::int32_t>(count);
    case DType::kUInt8:
      return Convert<From, std::uint8_t>(count);
    case DType::kBool:
      return Convert<From, bool>(count);
    default:
      throw std::invalid_argument(std::string("no conversion to ") + Name(to));
  }
}

}  // namespace

Kernel CastKernel(DType from, DType to, std::size_t count) {
  switch (from) {
    case DType::kFloat32:
      return ConvertFrom<float>(to, count);
    case DType::kFloat64:
      return ConvertFrom<double>(to, count);
    case DType::kInt64:
      return ConvertFrom<std::int64_t>(to, count);
    case DType::kInt32:
      return ConvertFrom<std::int32_t>(to, count);
    case DType::kUInt8:
      return ConvertFrom<std::uint8_t>(to, count);
    case DType::kBool:
      return ConvertFrom<bool>(to, count);
    default:
      throw std::invalid_argument(std::string("no conversion from ") + Name(from));
  }
}

}  // namespace pfb
