#include "compare.h"

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <type_traits>

#include "broadcast_loops.h"

namespace pfb {
namespace {

using Index = dnnl::memory::dim;

// Memory of bool tensors holds 0 or 1, but whoever made it may have stored something else.
template <typename T>
struct Read {
  using Type = T;
  static T From(T element) { return element; }
};
template <>
struct Read<bool> {
  using Type = std::uint8_t;
  static bool From(std::uint8_t element) { return element != 0; }
};

template <typename T, typename Result, typename Function>
Kernel Elementwise(const Dims& shape, const Dims& a, const Dims& b, const Dims& result) {
  const auto loops = PlanLoops<3>(shape, {a, b, result});
  return [loops](void* const* pointers) {
    using Stored = typename Read<T>::Type;
    const auto* first = static_cast<const Stored*>(pointers[0]);
    const auto* second = static_cast<const Stored*>(pointers[1]);
    auto* out = static_cast<Result*>(pointers[2]);
    ForEachRow<3>(loops, [&](const auto& at) {
      const Function function{};
      const Index n = loops.back().size;
      const auto [a_step, b_step, out_step] = loops.back().strides;
      const Stored* x = first + at[0];
      const Stored* y = second + at[1];
      Result* to = out + at[2];
      if (a_step == 1 && b_step == 0 && out_step == 1) {  // with a number: the common case
        const T number = Read<T>::From(*y);
        for (Index i = 0; i < n; ++i) to[i] = function(Read<T>::From(x[i]), number);
      } else {
        for (Index i = 0; i < n; ++i) {
          to[i * out_step] = function(Read<T>::From(x[i * a_step]), Read<T>::From(y[i * b_step]));
        }
      }
    });
  };
}

template <typename T>
Kernel CompareOf(const std::string& kind, const Dims& shape, const Dims& a, const Dims& b,
                 const Dims& result) {
  if (kind == "equal") return Elementwise<T, bool, std::equal_to<T>>(shape, a, b, result);
  if (kind == "not_equal") return Elementwise<T, bool, std::not_equal_to<T>>(shape, a, b, result);
  if (kind == "less_than") return Elementwise<T, bool, std::less<T>>(shape, a, b, result);
  if (kind == "less_equal") return Elementwise<T, bool, std::less_equal<T>>(shape, a, b, result);
  if (kind == "greater_than") return Elementwise<T, bool, std::greater<T>>(shape, a, b, result);
  if (kind == "greater_equal") {
    return Elementwise<T, bool, std::greater_equal<T>>(shape, a, b, result);
  }
  throw std::invalid_argument("no comparison '" + kind + "' of this type");
}

// Signed numbers wrap around, as they do in Paddle's kernels, and without undefined behaviour.
template <typename T>
struct Wrapped {
  using U = std::make_unsigned_t<T>;
  struct Add {
    T operator()(T x, T y) const { return static_cast<T>(static_cast<U>(x) + static_cast<U>(y)); }
  };
  struct Sub {
    T operator()(T x, T y) const { return static_cast<T>(static_cast<U>(x) - static_cast<U>(y)); }
  };
  struct Mul {
    T operator()(T x, T y) const { return static_cast<T>(static_cast<U>(x) * static_cast<U>(y)); }
  };
  struct Max {
    T operator()(T x, T y) const { return x > y ? x : y; }
  };
  struct Min {
    T operator()(T x, T y) const { return x < y ? x : y; }
  };
};

template <typename T>
Kernel IntegerOf(const std::string& kind, const Dims& shape, const Dims& a, const Dims& b,
                 const Dims& result) {
  using W = Wrapped<T>;
  if (kind == "add") return Elementwise<T, T, typename W::Add>(shape, a, b, result);
  if (kind == "sub") return Elementwise<T, T, typename W::Sub>(shape, a, b, result);
  if (kind == "mul") return Elementwise<T, T, typename W::Mul>(shape, a, b, result);
  if (kind == "max") return Elementwise<T, T, typename W::Max>(shape, a, b, result);
  if (kind == "min") return Elementwise<T, T, typename W::Min>(shape, a, b, result);
  throw std::invalid_argument("no operation '" + kind + "' of whole numbers");
}

template <typename T>
Kernel SelectOf(const Dims& shape, const Dims& condition, const Dims& x, const Dims& y,
                const Dims& result) {
  const auto loops = PlanLoops<4>(shape, {condition, x, y, result});
  return [loops](void* const* pointers) {
    const auto* chosen = static_cast<const std::uint8_t*>(pointers[0]);
    const auto* first = static_cast<const T*>(pointers[1]);
    const auto* second = static_cast<const T*>(pointers[2]);
    auto* out = static_cast<T*>(pointers[3]);
    ForEachRow<4>(loops, [&](const auto& at) {
      const auto [c_step, x_step, y_step, out_step] = loops.back().strides;
      for (Index i = 0; i < loops.back().size; ++i) {
        out[at[3] + i * out_step] = chosen[at[0] + i * c_step] != 0 ? first[at[1] + i * x_step]
                                                                    : second[at[2] + i * y_step];
      }
    });
  };
}

}  // namespace

Kernel CompareKernel(const std::string& kind, DType dtype, const Dims& shape, const Dims& a,
                     const Dims& b, const Dims& result) {
  switch (dtype) {
    case DType::kFloat32:
      return CompareOf<float>(kind, shape, a, b, result);
    case DType::kFloat64:
      return CompareOf<double>(kind, shape, a, b, result);
    case DType::kInt64:
      return CompareOf<std::int64_t>(kind, shape, a, b, result);
    case DType::kInt32:
      return CompareOf<std::int32_t>(kind, shape, a, b, result);
    case DType::kBool:
      if (kind == "and") return Elementwise<bool, bool, std::logical_and<>>(shape, a, b, result);
      if (kind == "or") return Elementwise<bool, bool, std::logical_or<>>(shape, a, b, result);
      if (kind == "xor") return Elementwise<bool, bool, std::not_equal_to<>>(shape, a, b, result);
      return CompareOf<bool>(kind, shape, a, b, result);
    default:
      throw std::invalid_argument(std::string("no comparison of ") + Name(dtype));
  }
}

Kernel IntegerKernel(const std::string& kind, DType dtype, const Dims& shape, const Dims& a,
                     const Dims& b, const Dims& result) {
  if (dtype == DType::kInt64) return IntegerOf<std::int64_t>(kind, shape, a, b, result);
  if (dtype == DType::kInt32) return IntegerOf<std::int32_t>(kind, shape, a, b, result);
  throw std::invalid_argument(std::string("no arithmetic of ") + Name(dtype));
}

Kernel SelectKernel(std::size_t element_bytes, const Dims& shape, const Dims& condition,
                    const Dims& x, const Dims& y, const Dims& result) {
  switch (element_bytes) {
    case 1:
      return SelectOf<std::uint8_t>(shape, condition, x, y, result);
    case 2:
      return SelectOf<std::uint16_t>(shape, condition, x, y, result);
    case 4:
      return SelectOf<std::uint32_t>(shape, condition, x, y, result);
    case 8:
      return SelectOf<std::uint64_t>(shape, condition, x, y, result);
    default:
      throw std::invalid_argument("no selection of elements of this size");
  }
}

}  // namespace pfb
