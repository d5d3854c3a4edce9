#include "broadcast.h"

#include <stdexcept>
#include <unordered_map>

#include "broadcast_loops.h"

namespace pfb {
namespace {

using Index = dnnl::memory::dim;

// Operands a and b, and the result.
using Loop = BroadcastLoop<3>;

struct Add {
  float operator()(float x, float y) const { return x + y; }
};
struct Sub {
  float operator()(float x, float y) const { return x - y; }
};
struct Mul {
  float operator()(float x, float y) const { return x * y; }
};
struct Div {
  float operator()(float x, float y) const { return x / y; }
};
// A NaN on either side wins, as in Paddle.
struct Max {
  float operator()(float x, float y) const { return (x > y || x != x) ? x : y; }
};
struct Min {
  float operator()(float x, float y) const { return (x < y || x != x) ? x : y; }
};

using RowFunction = void (*)(const float*, const float*, float*, const Loop&);

// The common inner strides are spelled out so that the compiler vectorises them.
template <typename Function>
void ApplyRow(const float* a, const float* b, float* result, const Loop& row) {
  const Function function{};
  const Index n = row.size;
  const auto [a_step, b_step, out_step] = row.strides;
  if (a_step == 1 && b_step == 1 && out_step == 1) {
    for (Index i = 0; i < n; ++i) result[i] = function(a[i], b[i]);
  } else if (a_step == 1 && b_step == 0 && out_step == 1) {
    const float y = *b;
    for (Index i = 0; i < n; ++i) result[i] = function(a[i], y);
  } else if (a_step == 0 && b_step == 1 && out_step == 1) {
    const float x = *a;
    for (Index i = 0; i < n; ++i) result[i] = function(x, b[i]);
  } else {
    for (Index i = 0; i < n; ++i) result[i * out_step] = function(a[i * a_step], b[i * b_step]);
  }
}

RowFunction ChooseRow(const std::string& kind) {
  static const std::unordered_map<std::string, RowFunction> kByName = {
      {"add", ApplyRow<Add>}, {"sub", ApplyRow<Sub>}, {"mul", ApplyRow<Mul>},
      {"div", ApplyRow<Div>}, {"max", ApplyRow<Max>}, {"min", ApplyRow<Min>},
  };
  const auto found = kByName.find(kind);
  if (found == kByName.end()) throw std::invalid_argument("no binary operation '" + kind + "'");
  return found->second;
}

}  // namespace

Dims BroadcastStrides(const Desc& desc, const Dims& shape) {
  const Dims own = desc.get_dims();
  Dims strides = desc.get_strides();
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (own[i] == 1) {
      strides[i] = 0;
    } else if (own[i] != shape[i]) {
      throw std::invalid_argument("shapes do not broadcast");
    }
  }
  return strides;
}

Kernel BroadcastKernel(const std::string& kind, const Dims& shape, const Dims& a, const Dims& b,
                       const Dims& result) {
  const auto loops = PlanLoops<3>(shape, {a, b, result});
  const auto apply = ChooseRow(kind);
  return [=](void* const* pointers) {
    const auto* first = static_cast<const float*>(pointers[0]);
    const auto* second = static_cast<const float*>(pointers[1]);
    auto* out = static_cast<float*>(pointers[2]);
    ForEachRow<3>(loops, [&](const auto& at) {
      apply(first + at[0], second + at[1], out + at[2], loops.back());
    });
  };
}

}  // namespace pfb
