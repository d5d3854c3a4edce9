#include "shuffle.h"

#include "parallel.h"
#include "simd.h"

namespace pfb {
namespace {

// Sixteen of each in turn.
PFB_INLINE void Sixteen(const float* a, const float* b, float* result) {
  Vec x, y;
  Load(a, x);
  Load(b, y);
  constexpr Mask kLow = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23};
  constexpr Mask kHigh = {8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const Vec low = __builtin_shuffle(x, y, kLow), high = __builtin_shuffle(x, y, kHigh);
  Store(low, result);
  Store(high, result + kLanes);
}

PFB_INLINE void InTurn(const float* a, const float* b, std::size_t count, float* result) {
  if (count < kLanes) {
    for (std::size_t i = 0; i < count; ++i) {
      result[2 * i] = a[i];
      result[2 * i + 1] = b[i];
    }
    return;
  }
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) Sixteen(a + i, b + i, result + 2 * i);
  // The last ones again, together with some before them.
  if (i < count) {
    i = count - kLanes;
    Sixteen(a + i, b + i, result + 2 * i);
  }
}

PFB_INLINE void PixelsBody(const ShuffleShape& s, const float* a, const float* b, std::size_t begin,
                           std::size_t end, float* first, float* second) {
  const std::size_t half = s.channels / 2;
  for (std::size_t p = begin; p < end; ++p) {
    const float* x = a + p * s.a_stride;
    const float* y = b + p * s.b_stride;
    if (s.halves) {
      InTurn(x, y, half, first + p * s.channels);
      InTurn(x + half, y + half, half, second + p * s.channels);
    } else {
      InTurn(x, y, s.channels, first + p * 2 * s.channels);
    }
  }
}

using PixelsFunction = void (*)(const ShuffleShape&, const float*, const float*, std::size_t,
                                std::size_t, float*, float*);

PFB_AVX512 void PixelsAvx512(const ShuffleShape& s, const float* a, const float* b,
                             std::size_t begin, std::size_t end, float* first, float* second) {
  PixelsBody(s, a, b, begin, end, first, second);
}
void PixelsPlain(const ShuffleShape& s, const float* a, const float* b, std::size_t begin,
                 std::size_t end, float* first, float* second) {
  PixelsBody(s, a, b, begin, end, first, second);
}
PFB_AVX2 void PixelsAvx2(const ShuffleShape& s, const float* a, const float* b, std::size_t begin,
                         std::size_t end, float* first, float* second) {
  PixelsBody(s, a, b, begin, end, first, second);
}

}  // namespace

Kernel ShuffleKernel(const ShuffleShape& shape) {
  const PixelsFunction loop = HasAvx512() ? PixelsAvx512 : HasAvx2() ? PixelsAvx2 : PixelsPlain;
  return [=](void* const* pointers) {
    const auto* a = static_cast<const float*>(pointers[0]);
    const auto* b = static_cast<const float*>(pointers[1]);
    auto* first = static_cast<float*>(pointers[2]);
    auto* second = shape.halves ? static_cast<float*>(pointers[3]) : nullptr;
    ParallelFor(shape.pixels, [&](std::size_t begin, std::size_t end) {
      loop(shape, a, b, begin, end, first, second);
    });
  };
}

}  // namespace pfb
