#include "reduce.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <vector>

#include "parallel.h"

namespace pfb {
namespace {

struct Sum {
  static constexpr float kStart = 0.0F;
  float operator()(float x, float y) const { return x + y; }
};
struct Max {
  static constexpr float kStart = -std::numeric_limits<float>::infinity();
  float operator()(float x, float y) const { return (x > y || x != x) ? x : y; }
};
struct Min {
  static constexpr float kStart = std::numeric_limits<float>::infinity();
  float operator()(float x, float y) const { return (x < y || x != x) ? x : y; }
};

// Many partial results side by side: they vectorise, and sums of long rows stay accurate.
template <typename Function>
float ReduceRow(const float* row, std::size_t count) {
  constexpr std::size_t kLanes = 32;
  const Function function{};
  float lanes[kLanes];
  std::fill_n(lanes, kLanes, Function::kStart);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = function(lanes[lane], row[i + lane]);
    }
  }
  for (; i < count; ++i) lanes[0] = function(lanes[0], row[i]);
  for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::size_t lane = 0; lane < width; ++lane) {
      lanes[lane] = function(lanes[lane], lanes[lane + width]);
    }
  }
  return lanes[0];
}

template <typename Function>
void ReduceColumns(const float* source, float* result, std::size_t reduced, std::size_t inner,
                   std::size_t begin, std::size_t end) {
  const Function function{};
  std::fill(result + begin, result + end, Function::kStart);
  for (std::size_t r = 0; r < reduced; ++r) {
    const float* row = source + r * inner;
    for (std::size_t i = begin; i < end; ++i) result[i] = function(result[i], row[i]);
  }
}

template <typename Function>
Kernel Reduce(std::size_t outer, std::size_t reduced, std::size_t inner, float factor) {
  return [=](void* const* pointers) {
    const auto* source = static_cast<const float*>(pointers[0]);
    auto* result = static_cast<float*>(pointers[1]);
    // Columns are cut into pieces that stay in the first-level cache while rows stream by.
    constexpr std::size_t kPiece = 1024;
    const std::size_t pieces = (inner + kPiece - 1) / kPiece;
    const auto share = [&](std::size_t first, std::size_t last) {
      for (std::size_t task = first; task < last; ++task) {
        const std::size_t o = task / pieces;
        const std::size_t begin = task % pieces * kPiece;
        const std::size_t end = std::min(inner, begin + kPiece);
        const float* block = source + o * reduced * inner;
        float* out = result + o * inner;
        if (inner == 1) {
          out[0] = ReduceRow<Function>(block, reduced);
        } else {
          ReduceColumns<Function>(block, out, reduced, inner, begin, end);
        }
        for (std::size_t i = begin; i < end; ++i) out[i] *= factor;
      }
    };
    constexpr std::size_t kSerialElements = 32 << 10;
    if (outer * reduced * inner < kSerialElements) {
      share(0, outer * pieces);
    } else {
      ParallelFor(outer * pieces, share);
    }
  };
}

}  // namespace

Kernel ReduceKernel(const std::string& kind, std::size_t outer, std::size_t reduced,
                    std::size_t inner) {
  if (kind == "sum") return Reduce<Sum>(outer, reduced, inner, 1.0F);
  if (kind == "mean") {
    return Reduce<Sum>(outer, reduced, inner, 1.0F / static_cast<float>(reduced));
  }
  if (kind == "max") return Reduce<Max>(outer, reduced, inner, 1.0F);
  if (kind == "min") return Reduce<Min>(outer, reduced, inner, 1.0F);
  throw std::invalid_argument("no reduction '" + kind + "'");
}

}  // namespace pfb
