#include "strided_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>

#include "parallel.h"

namespace pfb {
namespace {

struct Loop {
  dnnl::memory::dim size;
  dnnl::memory::dim from;
  dnnl::memory::dim to;
};

// Loops from the outermost to the innermost by destination stride, neighbours merged.
std::vector<Loop> PlanLoops(const Dims& shape, const Dims& from, const Dims& to) {
  std::vector<Loop> loops;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != 1) loops.push_back({shape[i], from[i], to[i]});
  }
  std::stable_sort(loops.begin(), loops.end(),
                   [](const Loop& a, const Loop& b) { return a.to > b.to; });
  std::vector<Loop> merged;
  for (const Loop& loop : loops) {
    if (!merged.empty() && merged.back().from == loop.from * loop.size &&
        merged.back().to == loop.to * loop.size) {
      merged.back() = {merged.back().size * loop.size, loop.from, loop.to};
    } else {
      merged.push_back(loop);
    }
  }
  if (merged.empty()) merged.push_back({1, 1, 1});
  return merged;
}

template <typename Element>
void CopyRow(const char* from, char* to, const Loop& row) {
  const auto* source = reinterpret_cast<const Element*>(from);
  auto* destination = reinterpret_cast<Element*>(to);
  for (dnnl::memory::dim i = 0; i < row.size; ++i) destination[i * row.to] = source[i * row.from];
}

using RowCopy = void (*)(const char*, char*, const Loop&);

RowCopy ChooseRowCopy(std::size_t element_bytes) {
  switch (element_bytes) {
    case 1:
      return CopyRow<std::uint8_t>;
    case 2:
      return CopyRow<std::uint16_t>;
    case 4:
      return CopyRow<std::uint32_t>;
    default:
      return CopyRow<std::uint64_t>;
  }
}

}  // namespace

Kernel StridedCopy(Dims shape, Dims from, Dims to, std::size_t element_bytes) {
  auto loops = PlanLoops(shape, from, to);
  const Loop row = loops.back();
  loops.pop_back();
  std::size_t rows = 1;
  for (const Loop& loop : loops) rows *= static_cast<std::size_t>(loop.size);
  const bool contiguous = row.from == 1 && row.to == 1;
  const auto copy = ChooseRowCopy(element_bytes);
  const auto bytes = static_cast<dnnl::memory::dim>(element_bytes);

  return [=](void* const* pointers) {
    const auto* source = static_cast<const char*>(pointers[0]);
    auto* destination = static_cast<char*>(pointers[1]);
    const auto share = [&](std::size_t begin, std::size_t end) {
      for (std::size_t index = begin; index < end; ++index) {
        std::size_t rest = index;
        dnnl::memory::dim source_at = 0;
        dnnl::memory::dim destination_at = 0;
        for (auto loop = loops.rbegin(); loop != loops.rend(); ++loop) {
          const auto step = static_cast<dnnl::memory::dim>(rest % loop->size);
          rest /= static_cast<std::size_t>(loop->size);
          source_at += step * loop->from;
          destination_at += step * loop->to;
        }
        const char* row_from = source + source_at * bytes;
        char* row_to = destination + destination_at * bytes;
        if (contiguous) {
          std::memcpy(row_to, row_from, static_cast<std::size_t>(row.size * bytes));
        } else {
          copy(row_from, row_to, row);
        }
      }
    };
    // Waking the other threads costs a few microseconds: not worth it for small tensors.
    constexpr std::size_t kSerialBytes = 64 << 10;
    if (rows * static_cast<std::size_t>(row.size) * element_bytes < kSerialBytes) {
      share(0, rows);
    } else {
      ParallelFor(rows, share);
    }
  };
}

}  // namespace pfb
