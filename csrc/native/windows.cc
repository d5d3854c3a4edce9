#include "windows.h"

#include <algorithm>
#include <memory>

#include "parallel.h"
#include "simd.h"

namespace pfb {
namespace {

PFB_INLINE void Combine(bool maximum, bool begins, const float* x, float weight, std::size_t count,
                        float* y) {
  if (maximum) {
    if (begins) {
      std::copy_n(x, count, y);
    } else {
      for (std::size_t i = 0; i < count; ++i) y[i] = (x[i] > y[i] || x[i] != x[i]) ? x[i] : y[i];
    }
  } else if (begins) {
    for (std::size_t i = 0; i < count; ++i) y[i] = weight * x[i];
  } else {
    for (std::size_t i = 0; i < count; ++i) y[i] += weight * x[i];
  }
}

// One row of the result: its rows of the source are combined into `row`, then that one's columns.
PFB_INLINE void RowBody(const WindowsShape& s, const float* image, std::size_t at, float* row,
                        float* result) {
  const std::size_t width = s.columns * s.inner;
  for (int t = s.vertical.first[at]; t < s.vertical.first[at + 1]; ++t) {
    Combine(s.maximum, t == s.vertical.first[at],
            image + static_cast<std::size_t>(s.vertical.source[t]) * width, s.vertical.weight[t],
            width, row);
  }
  const std::size_t made = s.horizontal.size();
  for (std::size_t j = 0; j < made; ++j) {
    for (int t = s.horizontal.first[j]; t < s.horizontal.first[j + 1]; ++t) {
      Combine(s.maximum, t == s.horizontal.first[j],
              row + static_cast<std::size_t>(s.horizontal.source[t]) * s.inner,
              s.horizontal.weight[t], s.inner, result + j * s.inner);
    }
  }
}

using RowFunction = void (*)(const WindowsShape&, const float*, std::size_t, float*, float*);

PFB_AVX512 void RowAvx512(const WindowsShape& s, const float* image, std::size_t at, float* row,
                          float* result) {
  RowBody(s, image, at, row, result);
}
PFB_AVX2 void RowAvx2(const WindowsShape& s, const float* image, std::size_t at, float* row,
                      float* result) {
  RowBody(s, image, at, row, result);
}
void RowPlain(const WindowsShape& s, const float* image, std::size_t at, float* row,
              float* result) {
  RowBody(s, image, at, row, result);
}

}  // namespace

Kernel WindowsKernel(WindowsShape shape) {
  const auto held = std::make_shared<const WindowsShape>(std::move(shape));
  const RowFunction make = HasAvx512() ? RowAvx512 : HasAvx2() ? RowAvx2 : RowPlain;
  return [held, make](void* const* pointers) {
    const WindowsShape& s = *held;
    const auto* source = static_cast<const float*>(pointers[0]);
    auto* result = static_cast<float*>(pointers[1]);
    const std::size_t made = s.vertical.size();
    ParallelFor(s.outer * made, [&](std::size_t begin, std::size_t end) {
      std::vector<float> row(s.columns * s.inner);
      for (std::size_t i = begin; i < end; ++i) {
        make(s, source + i / made * s.rows * s.columns * s.inner, i % made, row.data(),
             result + i * s.horizontal.size() * s.inner);
      }
    });
  };
}

}  // namespace pfb
