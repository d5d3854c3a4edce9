#include <cmath>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "parallel.h"
#include "row_norm.h"
#include "simd.h"

namespace pfb {
namespace {

PFB_INLINE void AddBody(const float* x, bool begins, std::size_t count, float* y) {
  if (begins) {
    for (std::size_t i = 0; i < count; ++i) y[i] = x[i];
  } else {
    for (std::size_t i = 0; i < count; ++i) y[i] += x[i];
  }
}

// Mean and variance in many lanes, then the line through each column.
PFB_INLINE void NormBody(const float* x, const float* scale, const float* shift, float epsilon,
                         std::size_t count, float* y) {
  float lanes[kLanes] = {};
  std::size_t whole = count / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += x[i + lane];
  }
  for (std::size_t i = whole; i < count; ++i) lanes[0] += x[i];
  float total = 0.0F;
  for (const float lane : lanes) total += lane;
  const float mean = total / static_cast<float>(count);
  float squares[kLanes] = {};
  for (std::size_t i = 0; i < whole; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      squares[lane] += (x[i + lane] - mean) * (x[i + lane] - mean);
    }
  }
  for (std::size_t i = whole; i < count; ++i) squares[0] += (x[i] - mean) * (x[i] - mean);
  float variance = 0.0F;
  for (const float lane : squares) variance += lane;
  const float factor = 1.0F / std::sqrt(variance / static_cast<float>(count) + epsilon);
  for (std::size_t i = 0; i < count; ++i) y[i] = (x[i] - mean) * factor;
  if (scale != nullptr) {
    for (std::size_t i = 0; i < count; ++i) y[i] *= scale[i];
  }
  if (shift != nullptr) {
    for (std::size_t i = 0; i < count; ++i) y[i] += shift[i];
  }
}

struct Loops {
  void (*add)(const float*, bool, std::size_t, float*);
  void (*norm)(const float*, const float*, const float*, float, std::size_t, float*);
};

#define PFB_INSTANTIATE(suffix, isa)                                                             \
  isa void Add##suffix(const float* x, bool b, std::size_t n, float* y) { AddBody(x, b, n, y); } \
  isa void Norm##suffix(const float* x, const float* a, const float* b, float e, std::size_t n,  \
                        float* y) {                                                              \
    NormBody(x, a, b, e, n, y);                                                                  \
  }                                                                                              \
  constexpr Loops kLoops##suffix = {Add##suffix, Norm##suffix};

PFB_INSTANTIATE(Avx512, PFB_AVX512)
PFB_INSTANTIATE(Avx2, PFB_AVX2)
PFB_INSTANTIATE(Plain, )
#undef PFB_INSTANTIATE

const Loops& TheLoops() {
  return HasAvx512() ? kLoopsAvx512 : HasAvx2() ? kLoopsAvx2 : kLoopsPlain;
}

// Raises where Paddle raises.
std::size_t IdAt(const void* ids, bool wide, std::size_t index, std::size_t rows) {
  const std::int64_t id = wide ? static_cast<const std::int64_t*>(ids)[index]
                               : static_cast<const std::int32_t*>(ids)[index];
  if (id < 0 || static_cast<std::size_t>(id) >= rows) {
    throw std::out_of_range("embedding: id " + std::to_string(id) + " is not in [0, " +
                            std::to_string(rows) + ")");
  }
  return static_cast<std::size_t>(id);
}

}  // namespace

Kernel EmbeddingNormKernel(EmbeddingNormShape made) {
  const auto held = std::make_shared<const EmbeddingNormShape>(std::move(made));
  return [held](void* const* pointers) {
    const EmbeddingNormShape& shape = *held;
    const std::size_t tables = shape.table_rows.size(), dense = shape.dense_rows.size();
    std::size_t next = 1 + 2 * tables + dense;
    const auto optional = [&](bool given) {
      return given ? static_cast<float*>(pointers[next++]) : nullptr;
    };
    const float* scale = optional(shape.scaled);
    const float* shift = optional(shape.shifted);
    float* sums = optional(shape.keeps_sum);
    auto* result = static_cast<float*>(pointers[0]);
    // All ids are looked at first: an exception must not leave a parallel loop.
    for (std::size_t t = 0; t < tables; ++t) {
      for (std::size_t row = 0; row < shape.rows; ++row) {
        IdAt(pointers[1 + 2 * t], shape.wide[t], row, shape.table_rows[t]);
      }
    }
    const Loops& loops = TheLoops();
    const std::size_t columns = shape.columns;
    ParallelFor(shape.rows, [&](std::size_t begin, std::size_t end) {
      for (std::size_t row = begin; row < end; ++row) {
        float* y = result + row * columns;
        float* sum = sums == nullptr ? y : sums + row * columns;
        for (std::size_t t = 0; t < tables; ++t) {
          const std::size_t id = IdAt(pointers[1 + 2 * t], shape.wide[t], row, shape.table_rows[t]);
          const auto* table = static_cast<const float*>(pointers[2 + 2 * t]);
          loops.add(table + id * columns, t == 0, columns, sum);
        }
        for (std::size_t d = 0; d < dense; ++d) {
          const auto* operand = static_cast<const float*>(pointers[1 + 2 * tables + d]);
          loops.add(operand + row % shape.dense_rows[d] * columns, false, columns, sum);
        }
        loops.norm(sum, scale, shift, shape.epsilon, columns, y);
      }
    });
  };
}

}  // namespace pfb
