#include "row_norm.h"

#include <algorithm>
#include <cmath>

#include "parallel.h"
#include "simd.h"

namespace pfb {
namespace {

// -- loops that the compiler turns into vectors, for each instruction set
// --------------------------

// Sums in many lanes, so that long rows stay accurate.
PFB_INLINE float SumBody(const float* x, std::size_t count) {
  float lanes[kLanes * 2] = {};
  std::size_t i = 0;
  for (; i + kLanes * 2 <= count; i += kLanes * 2) {
    for (int lane = 0; lane < kLanes * 2; ++lane) lanes[lane] += x[i + lane];
  }
  for (; i < count; ++i) lanes[0] += x[i];
  for (int width = kLanes; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

PFB_INLINE float SquaresBody(const float* x, std::size_t count, float mean) {
  float lanes[kLanes * 2] = {};
  std::size_t i = 0;
  for (; i + kLanes * 2 <= count; i += kLanes * 2) {
    for (int lane = 0; lane < kLanes * 2; ++lane) {
      lanes[lane] += (x[i + lane] - mean) * (x[i + lane] - mean);
    }
  }
  for (; i < count; ++i) lanes[0] += (x[i] - mean) * (x[i] - mean);
  for (int width = kLanes; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

PFB_INLINE void ScaleBody(const float* x, float a, float b, std::size_t count, float* y) {
  for (std::size_t i = 0; i < count; ++i) y[i] = x[i] * a + b;
}

PFB_INLINE void RowBody(const float* x, const float* scale, float factor, std::size_t count,
                        float* y) {
  if (scale == nullptr) return ScaleBody(x, factor, 0.0F, count, y);
  for (std::size_t i = 0; i < count; ++i) y[i] = x[i] * factor * scale[i];
}

PFB_INLINE void AddPixelsBody(const float* x, std::size_t pixels, std::size_t channels,
                              float* sums) {
  std::fill_n(sums, channels, 0.0F);
  for (std::size_t p = 0; p < pixels; ++p, x += channels) {
    for (std::size_t c = 0; c < channels; ++c) sums[c] += x[c];
  }
}

PFB_INLINE void AddSquaresBody(const float* x, std::size_t pixels, std::size_t channels,
                               const float* mean, float* sums) {
  std::fill_n(sums, channels, 0.0F);
  for (std::size_t p = 0; p < pixels; ++p, x += channels) {
    for (std::size_t c = 0; c < channels; ++c) sums[c] += (x[c] - mean[c]) * (x[c] - mean[c]);
  }
}

PFB_INLINE void ScalePixelsBody(const float* x, std::size_t pixels, std::size_t channels,
                                const float* a, const float* b, float* y) {
  for (std::size_t p = 0; p < pixels; ++p, x += channels, y += channels) {
    for (std::size_t c = 0; c < channels; ++c) y[c] = x[c] * a[c] + b[c];
  }
}

struct Loops {
  float (*sum)(const float*, std::size_t);
  float (*squares)(const float*, std::size_t, float);
  void (*scale)(const float*, float, float, std::size_t, float*);
  void (*row)(const float*, const float*, float, std::size_t, float*);
  void (*add_pixels)(const float*, std::size_t, std::size_t, float*);
  void (*add_squares)(const float*, std::size_t, std::size_t, const float*, float*);
  void (*scale_pixels)(const float*, std::size_t, std::size_t, const float*, const float*, float*);
};

#define PFB_INSTANTIATE(suffix, isa)                                                           \
  isa float Sum##suffix(const float* x, std::size_t n) { return SumBody(x, n); }               \
  isa float Squares##suffix(const float* x, std::size_t n, float m) {                          \
    return SquaresBody(x, n, m);                                                               \
  }                                                                                            \
  isa void Scale##suffix(const float* x, float a, float b, std::size_t n, float* y) {          \
    ScaleBody(x, a, b, n, y);                                                                  \
  }                                                                                            \
  isa void Row##suffix(const float* x, const float* s, float f, std::size_t n, float* y) {     \
    RowBody(x, s, f, n, y);                                                                    \
  }                                                                                            \
  isa void AddPixels##suffix(const float* x, std::size_t n, std::size_t c, float* sums) {      \
    AddPixelsBody(x, n, c, sums);                                                              \
  }                                                                                            \
  isa void AddSquares##suffix(const float* x, std::size_t n, std::size_t c, const float* m,    \
                              float* sums) {                                                   \
    AddSquaresBody(x, n, c, m, sums);                                                          \
  }                                                                                            \
  isa void ScalePixels##suffix(const float* x, std::size_t n, std::size_t c, const float* a,   \
                               const float* b, float* y) {                                     \
    ScalePixelsBody(x, n, c, a, b, y);                                                         \
  }                                                                                            \
  constexpr Loops kLoops##suffix = {Sum##suffix,        Squares##suffix,   Scale##suffix,      \
                                    Row##suffix,        AddPixels##suffix, AddSquares##suffix, \
                                    ScalePixels##suffix};

PFB_INSTANTIATE(Avx512, PFB_AVX512)
PFB_INSTANTIATE(Avx2, PFB_AVX2)
PFB_INSTANTIATE(Plain, )
#undef PFB_INSTANTIATE

const Loops& TheLoops() {
  return HasAvx512() ? kLoopsAvx512 : HasAvx2() ? kLoopsAvx2 : kLoopsPlain;
}

// -- group norm
// ------------------------------------------------------------------------------------

struct GroupNorm {
  const GroupNormShape& shape;
  const float* scale;  // per channel, or none
  const float* shift;

  std::size_t per_group() const { return shape.channels / shape.groups; }
  float count() const { return static_cast<float>(per_group() * shape.pixels); }
  float Factor(float squares) const { return 1.0F / std::sqrt(squares / count() + shape.epsilon); }

  // Channel c of the result is x * a + b.
  void Line(std::size_t c, float mean, float factor, float& a, float& b) const {
    a = factor * (scale == nullptr ? 1.0F : scale[c]);
    b = (shift == nullptr ? 0.0F : shift[c]) - mean * a;
  }

  // One group of one image, planes one after the other.
  void Planes(const float* x, std::size_t group, float* y) const {
    const Loops& loops = TheLoops();
    const std::size_t size = per_group() * shape.pixels;
    const float mean = loops.sum(x, size) / count();
    const float factor = Factor(loops.squares(x, size, mean));
    for (std::size_t i = 0; i < per_group(); ++i) {
      float a, b;
      Line(group * per_group() + i, mean, factor, a, b);
      loops.scale(x + i * shape.pixels, a, b, shape.pixels, y + i * shape.pixels);
    }
  }

  // One image with its channels last; `work`: partial sums per chunk, then two vectors.
  void Pixels(const float* x, float* work, float* y) const {
    const Loops& loops = TheLoops();
    const std::size_t channels = shape.channels;
    float* a = work + shape.chunks * channels;
    float* b = a + channels;
    const auto each = [&](const auto& body) {
      ParallelFor(shape.chunks, [&](std::size_t begin, std::size_t end) {
        for (std::size_t chunk = begin; chunk < end; ++chunk) {
          const std::size_t first = shape.pixels * chunk / shape.chunks;
          const std::size_t last = shape.pixels * (chunk + 1) / shape.chunks;
          body(chunk, first * channels, last - first);
        }
      });
    };
    each([&](std::size_t chunk, std::size_t at, std::size_t pixels) {
      loops.add_pixels(x + at, pixels, channels, work + chunk * channels);
    });
    Spread(work, a);
    for (std::size_t c = 0; c < channels; ++c) a[c] /= count();
    each([&](std::size_t chunk, std::size_t at, std::size_t pixels) {
      loops.add_squares(x + at, pixels, channels, a, work + chunk * channels);
    });
    Spread(work, b);
    for (std::size_t c = 0; c < channels; ++c) {
      const float mean = a[c];
      Line(c, mean, Factor(b[c]), a[c], b[c]);
    }
    each([&](std::size_t, std::size_t at, std::size_t pixels) {
      loops.scale_pixels(x + at, pixels, channels, a, b, y + at);
    });
  }

  // The sum over chunks and over the channels of a group, for each channel of it.
  void Spread(const float* partial, float* sums) const {
    for (std::size_t group = 0; group < shape.groups; ++group) {
      float total = 0.0F;
      for (std::size_t i = 0; i < per_group(); ++i) {
        for (std::size_t chunk = 0; chunk < shape.chunks; ++chunk) {
          total += partial[chunk * shape.channels + group * per_group() + i];
        }
      }
      std::fill_n(sums + group * per_group(), per_group(), total);
    }
  }
};

}  // namespace

Kernel RmsNormKernel(std::size_t rows, std::size_t columns, float epsilon, bool scaled) {
  return [=](void* const* pointers) {
    const auto* source = static_cast<const float*>(pointers[0]);
    auto* result = static_cast<float*>(pointers[1]);
    const auto* scale = scaled ? static_cast<const float*>(pointers[2]) : nullptr;
    const Loops& loops = TheLoops();
    ParallelFor(rows, [&](std::size_t begin, std::size_t end) {
      for (std::size_t row = begin; row < end; ++row) {
        const float* x = source + row * columns;
        const float mean = loops.squares(x, columns, 0.0F) / static_cast<float>(columns);
        loops.row(x, scale, 1.0F / std::sqrt(mean + epsilon), columns, result + row * columns);
      }
    });
  };
}

Kernel GroupNormKernel(const GroupNormShape& shape) {
  return [shape](void* const* pointers) {
    const auto* source = static_cast<const float*>(pointers[0]);
    auto* result = static_cast<float*>(pointers[1]);
    auto* work = static_cast<float*>(pointers[2]);
    const auto* scale = shape.scaled ? static_cast<const float*>(pointers[3]) : nullptr;
    const auto* shift =
        shape.shifted ? static_cast<const float*>(pointers[shape.scaled ? 4 : 3]) : nullptr;
    const GroupNorm norm{shape, scale, shift};
    const std::size_t image = shape.channels * shape.pixels;
    if (shape.channels_last) {
      for (std::size_t n = 0; n < shape.batch; ++n) {
        norm.Pixels(source + n * image, work, result + n * image);
      }
      return;
    }
    const std::size_t size = image / shape.groups;
    ParallelFor(shape.batch * shape.groups, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) {
        norm.Planes(source + i * size, i % shape.groups, result + i * size);
      }
    });
  };
}

}  // namespace pfb
