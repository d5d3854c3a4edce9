// Vectors of 16 floats, as the compiler knows them, for loops of our own.
//
// Such loops are written once, in functions that are always inlined, and compiled for each
// instruction set by functions with a target attribute that call them.
#pragma once

#include <cstring>

#define PFB_INLINE inline __attribute__((always_inline))
#define PFB_AVX512 __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,fma")))
#define PFB_AVX2 __attribute__((target("avx2,fma")))

namespace pfb {

constexpr int kLanes = 16;
typedef float Vec __attribute__((vector_size(kLanes * sizeof(float))));
typedef int Mask __attribute__((vector_size(kLanes * sizeof(float))));

PFB_INLINE void Load(const float* from, Vec& to) { std::memcpy(&to, from, sizeof(Vec)); }
PFB_INLINE void Store(const Vec& from, float* to) { std::memcpy(to, &from, sizeof(Vec)); }

inline bool HasAvx512() {
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
  return has;
}

inline bool HasAvx2() {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return has;
}

// exp, to about one unit in the last place.  Not-a-number stays; results below the smallest normal
// number become zero or that number, those above the largest become the largest.
PFB_INLINE void Exp(const Vec& argument, Vec& result) {
  constexpr float kLowest = -87.3F, kHighest = 88.3F;
  Vec x = argument;
  x = x < kLowest ? Vec{} + kLowest : x;
  x = x > kHighest ? Vec{} + kHighest : x;
  // x = n log 2 + r, n rounded to the nearest by adding and taking away 1.5 * 2^23.
  constexpr float kRound = 12582912.0F;
  const Vec shifted = x * 1.44269504088896341F + kRound;
  const Vec n = shifted - kRound;
  const Vec r = (x - n * 0.693359375F) - n * -2.12194440e-4F;
  Vec p = Vec{} + 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  // The low bits of `shifted` are n: moved to where the exponent is, they are a factor of 2^n.
  const Mask power = ((Mask)shifted << 23) + 0x3f800000;
  result = p * (Vec)power;
}

PFB_INLINE void Sigmoid(const Vec& x, Vec& result) {
  Vec e;
  Exp(-x, e);
  result = 1.0F / (1.0F + e);
}

// Near zero a polynomial, since 1 - 2 / (exp(2x) + 1) loses digits there.
PFB_INLINE void Tanh(const Vec& x, Vec& result) {
  Vec e;
  Exp(x + x, e);
  const Vec far = 1.0F - 2.0F / (e + 1.0F);
  const Vec square = x * x;
  Vec p = Vec{} - 5.70498872745e-3F;
  p = p * square + 2.06390887954e-2F;
  p = p * square - 5.37397155531e-2F;
  p = p * square + 1.33314422036e-1F;
  p = p * square - 3.33332819422e-1F;
  const Vec near = p * square * x + x;
  constexpr float kNear = 0.625F * 0.625F;
  result = square < kNear ? near : far;
}

}  // namespace pfb
