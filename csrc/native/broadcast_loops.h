// The nest of loops over the elements of a broadcast operation, shortest possible.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "layout.h"
#include "parallel.h"

namespace pfb {

// One loop: how often, and how far each operand moves per turn, in elements; the last is the
// result.
template <std::size_t N>
struct BroadcastLoop {
  dnnl::memory::dim size;
  std::array<dnnl::memory::dim, N> strides;
};

// Loops over `shape`, the innermost last, for operands with these strides (0 where repeated).  The
// order is that of the result in memory; dimensions that all operands walk in one go are merged.
template <std::size_t N>
std::vector<BroadcastLoop<N>> PlanLoops(const Dims& shape, const std::array<Dims, N>& strides) {
  std::vector<BroadcastLoop<N>> loops;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    BroadcastLoop<N> loop{shape[i], {}};
    for (std::size_t k = 0; k < N; ++k) loop.strides[k] = strides[k][i];
    loops.push_back(loop);
  }
  std::stable_sort(loops.begin(), loops.end(), [](const auto& x, const auto& y) {
    return x.strides[N - 1] > y.strides[N - 1];
  });
  std::vector<BroadcastLoop<N>> merged;
  for (const auto& loop : loops) {
    bool joins = !merged.empty();
    for (std::size_t k = 0; joins && k < N; ++k) {
      joins = merged.back().strides[k] == loop.strides[k] * loop.size;
    }
    if (joins) {
      merged.back() = {merged.back().size * loop.size, loop.strides};
    } else {
      merged.push_back(loop);
    }
  }
  if (merged.empty()) {
    merged.push_back({1, {}});
    merged.back().strides.fill(1);
  }
  return merged;
}

// Calls row(at) once per turn of all loops but the innermost; at[k]: where operand k's row starts.
// Large tensors are shared among the threads.
template <std::size_t N, typename Row>
void ForEachRow(const std::vector<BroadcastLoop<N>>& loops, const Row& row) {
  std::size_t rows = 1;
  for (std::size_t i = 0; i + 1 < loops.size(); ++i) {
    rows *= static_cast<std::size_t>(loops[i].size);
  }
  const auto share = [&](std::size_t begin, std::size_t end) {
    for (std::size_t index = begin; index < end; ++index) {
      std::size_t rest = index;
      std::array<dnnl::memory::dim, N> at{};
      for (std::size_t i = loops.size() - 1; i-- > 0;) {
        const auto turn =
            static_cast<dnnl::memory::dim>(rest % static_cast<std::size_t>(loops[i].size));
        rest /= static_cast<std::size_t>(loops[i].size);
        for (std::size_t k = 0; k < N; ++k) at[k] += turn * loops[i].strides[k];
      }
      row(at);
    }
  };
  constexpr std::size_t kSerialElements = 16 << 10;
  if (rows * static_cast<std::size_t>(loops.back().size) < kSerialElements) {
    share(0, rows);
  } else {
    ParallelFor(rows, share);
  }
}

}  // namespace pfb
