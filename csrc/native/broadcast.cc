#include "broadcast.h"

#include <algorithm>
#include <stdexcept>
#include <unordered_map>

#include "parallel.h"

namespace pfb {
namespace {

using Index = dnnl::memory::dim;

struct Loop {
  Index size;
  Index a;
  Index b;
  Index result;
};

std::vector<Loop> PlanLoops(const Dims& shape, const Dims& a, const Dims& b, const Dims& result) {
  std::vector<Loop> loops;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != 1) loops.push_back({shape[i], a[i], b[i], result[i]});
  }
  std::stable_sort(loops.begin(), loops.end(),
                   [](const Loop& x, const Loop& y) { return x.result > y.result; });
  std::vector<Loop> merged;
  for (const Loop& loop : loops) {
    const bool joins = !merged.empty() && merged.back().a == loop.a * loop.size &&
                       merged.back().b == loop.b * loop.size &&
                       merged.back().result == loop.result * loop.size;
    if (joins) {
      merged.back() = {merged.back().size * loop.size, loop.a, loop.b, loop.result};
    } else {
      merged.push_back(loop);
    }
  }
  if (merged.empty()) merged.push_back({1, 1, 1, 1});
  return merged;
}

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
  if (row.a == 1 && row.b == 1 && row.result == 1) {
    for (Index i = 0; i < n; ++i) result[i] = function(a[i], b[i]);
  } else if (row.a == 1 && row.b == 0 && row.result == 1) {
    const float y = *b;
    for (Index i = 0; i < n; ++i) result[i] = function(a[i], y);
  } else if (row.a == 0 && row.b == 1 && row.result == 1) {
    const float x = *a;
    for (Index i = 0; i < n; ++i) result[i] = function(x, b[i]);
  } else {
    for (Index i = 0; i < n; ++i) {
      result[i * row.result] = function(a[i * row.a], b[i * row.b]);
    }
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
  auto loops = PlanLoops(shape, a, b, result);
  const Loop row = loops.back();
  loops.pop_back();
  const auto apply = ChooseRow(kind);
  std::size_t rows = 1;
  for (const Loop& loop : loops) rows *= static_cast<std::size_t>(loop.size);

  return [=](void* const* pointers) {
    const auto* first = static_cast<const float*>(pointers[0]);
    const auto* second = static_cast<const float*>(pointers[1]);
    auto* out = static_cast<float*>(pointers[2]);
    const auto share = [&](std::size_t begin, std::size_t end) {
      for (std::size_t index = begin; index < end; ++index) {
        std::size_t rest = index;
        Index a_at = 0;
        Index b_at = 0;
        Index out_at = 0;
        for (auto loop = loops.rbegin(); loop != loops.rend(); ++loop) {
          const auto step = static_cast<Index>(rest % static_cast<std::size_t>(loop->size));
          rest /= static_cast<std::size_t>(loop->size);
          a_at += step * loop->a;
          b_at += step * loop->b;
          out_at += step * loop->result;
        }
        apply(first + a_at, second + b_at, out + out_at, row);
      }
    };
    constexpr std::size_t kSerialElements = 16 << 10;
    if (rows * static_cast<std::size_t>(row.size) < kSerialElements) {
      share(0, rows);
    } else {
      ParallelFor(rows, share);
    }
  };
}

}  // namespace pfb
