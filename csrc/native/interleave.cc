#include "interleave.h"

#include <algorithm>

#include "parallel.h"
#include "simd.h"

namespace pfb {
namespace {

constexpr std::size_t kPlanes = 3;

// The lanes of one of three result vectors: first chosen from two planes, then the third put in.
struct Choice {
  Mask two, three;

  PFB_INLINE explicit Choice(int vector) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const int at = vector * kLanes + lane;
      const int pixel = at / 3, plane = at % 3;
      two[lane] = plane == 1 ? kLanes + pixel : pixel;
      three[lane] = plane == 2 ? kLanes + pixel : lane;
    }
  }

  PFB_INLINE void Store(const Vec& a, const Vec& b, const Vec& c, float* to) const {
    const Vec first = __builtin_shuffle(a, b, two);
    const Vec all = __builtin_shuffle(first, c, three);
    pfb::Store(all, to);
  }
};

PFB_AVX512 void Interleave(const float* source, std::size_t plane, std::size_t begin,
                           std::size_t end, float* result) {
  const float* planes[kPlanes] = {source, source + plane, source + 2 * plane};
  const Choice first(0), second(1), third(2);
  std::size_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
    Vec a, b, c;
    Load(planes[0] + i, a);
    Load(planes[1] + i, b);
    Load(planes[2] + i, c);
    float* to = result + i * kPlanes;
    first.Store(a, b, c, to);
    second.Store(a, b, c, to + kLanes);
    third.Store(a, b, c, to + 2 * kLanes);
  }
  for (; i < end; ++i) {
    for (std::size_t p = 0; p < kPlanes; ++p) result[i * kPlanes + p] = planes[p][i];
  }
}

}  // namespace

bool InterleaveSupported() { return HasAvx512(); }

Kernel InterleaveKernel(std::size_t batch, std::size_t pixels, std::size_t plane,
                        std::size_t image) {
  return [=](void* const* pointers) {
    const auto* source = static_cast<const float*>(pointers[0]);
    auto* result = static_cast<float*>(pointers[1]);
    ParallelFor(pixels, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = 0; i < batch; ++i) {
        Interleave(source + i * image, plane, begin, end, result + i * pixels * kPlanes);
      }
    });
  };
}

}  // namespace pfb
