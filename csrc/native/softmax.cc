#include "softmax.h"

#include <algorithm>
#include <cstring>

#include "parallel.h"
#include "simd.h"

namespace pfb {
namespace {

// Sixteen pixels, or the `count` last ones; `count` is known at compile time but for the last.
PFB_INLINE void SixteenPixels(const float* x, std::size_t planes, std::size_t stride,
                              std::size_t count, float* y) {
  const std::size_t bytes = count * sizeof(float);
  Vec most = {};
  std::memcpy(&most, x, bytes);
  for (std::size_t c = 1; c < planes; ++c) {
    Vec value = {};
    std::memcpy(&value, x + c * stride, bytes);
    most = value > most ? value : most;
  }
  Vec sum = {};
  for (std::size_t c = 0; c < planes; ++c) {
    Vec value = {}, power;
    std::memcpy(&value, x + c * stride, bytes);
    value -= most;
    Exp(value, power);
    // Where exp() stops at the smallest number, -inf above all, it is zero.
    constexpr float kVanishes = -87.3F;
    power = value < kVanishes ? Vec{} : power;
    sum += power;
    std::memcpy(y + c * stride, &power, bytes);
  }
  const Vec factor = 1.0F / sum;
  for (std::size_t c = 0; c < planes; ++c) {
    Vec value = {};
    std::memcpy(&value, y + c * stride, bytes);
    value *= factor;
    std::memcpy(y + c * stride, &value, bytes);
  }
}

PFB_INLINE void PixelsBody(const float* x, std::size_t planes, std::size_t stride,
                           std::size_t pixels, float* y) {
  std::size_t p = 0;
  for (; p + kLanes <= pixels; p += kLanes) SixteenPixels(x + p, planes, stride, kLanes, y + p);
  if (p < pixels) SixteenPixels(x + p, planes, stride, pixels - p, y + p);
}

PFB_AVX512 void PixelsAvx512(const float* x, std::size_t planes, std::size_t stride,
                             std::size_t pixels, float* y) {
  PixelsBody(x, planes, stride, pixels, y);
}
PFB_AVX2 void PixelsAvx2(const float* x, std::size_t planes, std::size_t stride, std::size_t pixels,
                         float* y) {
  PixelsBody(x, planes, stride, pixels, y);
}

}  // namespace

bool PlaneSoftmaxSupported() { return HasAvx512() || HasAvx2(); }

Kernel PlaneSoftmaxKernel(std::size_t outer, std::size_t planes, std::size_t pixels) {
  const auto loop = HasAvx512() ? PixelsAvx512 : PixelsAvx2;
  // A few rows of vectors at a time: what is written stays in the cache until it is divided.
  constexpr std::size_t kPiece = 16 * kLanes;
  const std::size_t pieces = (pixels + kPiece - 1) / kPiece;
  return [=](void* const* pointers) {
    const auto* source = static_cast<const float*>(pointers[0]);
    auto* result = static_cast<float*>(pointers[1]);
    ParallelFor(outer * pieces, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) {
        const std::size_t first = i % pieces * kPiece;
        const std::size_t at = i / pieces * planes * pixels + first;
        loop(source + at, planes, pixels, std::min(kPiece, pixels - first), result + at);
      }
    });
  };
}

}  // namespace pfb
