#include "affine_rows.h"

#include <cstring>

#include "simd.h"

namespace pfb {
namespace {

PFB_INLINE void Channels(const float* source, std::size_t count, const float* scale,
                         const float* shift, const Activation& activation, float* result) {
  const std::size_t bytes = count * sizeof(float);
  Vec x = {}, factor = {}, addend = {};
  std::memcpy(&x, source, bytes);
  std::memcpy(&factor, scale, bytes);
  std::memcpy(&addend, shift, bytes);
  x = x * factor + addend;
  Apply(activation, x);
  std::memcpy(result, &x, bytes);
}

PFB_INLINE void Body(const float* source, std::size_t stride, std::size_t rows,
                     std::size_t channels, const float* scale, const float* shift,
                     const Activation& activation, float* result) {
  for (std::size_t row = 0; row < rows; ++row, source += stride, result += channels) {
    std::size_t c = 0;
    for (; c + kLanes <= channels; c += kLanes) {
      Channels(source + c, kLanes, scale + c, shift + c, activation, result + c);
    }
    if (c < channels) {
      Channels(source + c, channels - c, scale + c, shift + c, activation, result + c);
    }
  }
}

PFB_AVX512 void BodyAvx512(const float* source, std::size_t stride, std::size_t rows,
                           std::size_t channels, const float* scale, const float* shift,
                           const Activation& activation, float* result) {
  Body(source, stride, rows, channels, scale, shift, activation, result);
}
PFB_AVX2 void BodyAvx2(const float* source, std::size_t stride, std::size_t rows,
                       std::size_t channels, const float* scale, const float* shift,
                       const Activation& activation, float* result) {
  Body(source, stride, rows, channels, scale, shift, activation, result);
}

}  // namespace

bool AffineRowsSupported() { return HasAvx512() || HasAvx2(); }

void AffineRows(const float* source, std::size_t stride, std::size_t rows, std::size_t channels,
                const float* scale, const float* shift, const Activation& activation,
                float* result) {
  const auto body = HasAvx512() ? BodyAvx512 : BodyAvx2;
  body(source, stride, rows, channels, scale, shift, activation, result);
}

}  // namespace pfb
