#include "strided_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "parallel.h"

namespace pfb {
namespace {

using Index = dnnl::memory::dim;

struct Loop {
  Index size;
  Index from;
  Index to;
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

// Copies `outer` x `inner` elements; the inner loop is the longer one or the contiguous one.
template <typename Element>
void CopyPlane(const char* from, char* to, const Loop& outer, const Loop& inner) {
  const auto* source = reinterpret_cast<const Element*>(from);
  auto* destination = reinterpret_cast<Element*>(to);
  for (Index o = 0; o < outer.size; ++o) {
    const Element* row_from = source + o * outer.from;
    Element* row_to = destination + o * outer.to;
    if (inner.from == 1 && inner.to == 1) {
      std::memcpy(row_to, row_from, static_cast<std::size_t>(inner.size) * sizeof(Element));
    } else {
      for (Index i = 0; i < inner.size; ++i) row_to[i * inner.to] = row_from[i * inner.from];
    }
  }
}

using PlaneCopy = void (*)(const char*, char*, const Loop&, const Loop&);

PlaneCopy ChoosePlaneCopy(std::size_t element_bytes) {
  switch (element_bytes) {
    case 1:
      return CopyPlane<std::uint8_t>;
    case 2:
      return CopyPlane<std::uint16_t>;
    case 4:
      return CopyPlane<std::uint32_t>;
    default:
      return CopyPlane<std::uint64_t>;
  }
}

Loop TakeLast(std::vector<Loop>& loops) {
  if (loops.empty()) return {1, 1, 1};
  const Loop last = loops.back();
  loops.pop_back();
  return last;
}

}  // namespace

Kernel StridedCopy(Dims shape, Dims from, Dims to, std::size_t element_bytes) {
  auto loops = PlanLoops(shape, from, to);
  Loop inner = TakeLast(loops);
  Loop outer = TakeLast(loops);
  constexpr Index kShort = 8;
  if (inner.size < kShort && outer.size > inner.size) std::swap(inner, outer);
  std::size_t planes = 1;
  for (const Loop& loop : loops) planes *= static_cast<std::size_t>(loop.size);
  // One plane and several threads: share its outer loop instead.
  const bool flat = planes == 1;
  const std::size_t tasks = flat ? static_cast<std::size_t>(outer.size) : planes;
  const std::size_t bytes =
      planes * static_cast<std::size_t>(outer.size * inner.size) * element_bytes;
  const auto copy = ChoosePlaneCopy(element_bytes);
  const auto width = static_cast<Index>(element_bytes);

  return [=](void* const* pointers) {
    const auto* source = static_cast<const char*>(pointers[0]);
    auto* destination = static_cast<char*>(pointers[1]);
    const auto share = [&](std::size_t begin, std::size_t end) {
      if (flat) {
        const auto first = static_cast<Index>(begin);
        copy(source + first * outer.from * width, destination + first * outer.to * width,
             {static_cast<Index>(end) - first, outer.from, outer.to}, inner);
        return;
      }
      for (std::size_t index = begin; index < end; ++index) {
        std::size_t rest = index;
        Index source_at = 0;
        Index destination_at = 0;
        for (auto loop = loops.rbegin(); loop != loops.rend(); ++loop) {
          const auto step = static_cast<Index>(rest % static_cast<std::size_t>(loop->size));
          rest /= static_cast<std::size_t>(loop->size);
          source_at += step * loop->from;
          destination_at += step * loop->to;
        }
        copy(source + source_at * width, destination + destination_at * width, outer, inner);
      }
    };
    // Waking the other threads costs a few microseconds: not worth it for small tensors.
    constexpr std::size_t kSerialBytes = 64 << 10;
    if (bytes < kSerialBytes) {
      share(0, tasks);
    } else {
      ParallelFor(tasks, share);
    }
  };
}

}  // namespace pfb
