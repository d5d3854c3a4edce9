#include "attention.h"

#include <immintrin.h>

#include <algorithm>
#include <limits>

#include "parallel.h"
#include "simd.h"

// GCC 12 warns of its own headers' deliberately undefined operands (its bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace pfb {
namespace {

constexpr std::size_t RoundUp(std::size_t count) { return (count + kLanes - 1) / kLanes * kLanes; }

// C[rows, vectors * 16] = A[rows, depth] * B[depth, vectors * 16].
template <int kRows, int kVectors>
PFB_INLINE void Tile(const float* a, std::size_t a_row, const float* b, std::size_t b_row,
                     std::size_t depth, float* c, std::size_t c_row) {
  Vec sums[kRows][kVectors] = {};
  for (std::size_t k = 0; k < depth; ++k) {
    Vec right[kVectors];
    for (int v = 0; v < kVectors; ++v) Load(b + k * b_row + v * kLanes, right[v]);
    for (int r = 0; r < kRows; ++r) {
      const float left = a[r * a_row + k];
      for (int v = 0; v < kVectors; ++v) sums[r][v] += right[v] * left;
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) Store(sums[r][v], c + r * c_row + v * kLanes);
  }
}

// The sums that one tile has in registers are independent, and as many as hide an addition's
// latency.
template <int kRows, int kVectors>
PFB_INLINE void Rows(const float* a, std::size_t a_row, const float* b, std::size_t b_row,
                     std::size_t depth, float* c, std::size_t c_row, std::size_t columns) {
  std::size_t n = 0;
  for (; n + kVectors * kLanes <= columns; n += kVectors * kLanes) {
    Tile<kRows, kVectors>(a, a_row, b + n, b_row, depth, c + n, c_row);
  }
  for (; n < columns; n += kLanes) Tile<kRows, 1>(a, a_row, b + n, b_row, depth, c + n, c_row);
}

// C = A B; columns is a multiple of 16.
PFB_AVX512 __attribute__((noinline)) void Product(const float* a, std::size_t a_row, const float* b,
                                                  std::size_t b_row, std::size_t depth, float* c,
                                                  std::size_t c_row, std::size_t rows,
                                                  std::size_t columns) {
  std::size_t r = 0;
  for (; r + 8 <= rows; r += 8) {
    Rows<8, 2>(a + r * a_row, a_row, b, b_row, depth, c + r * c_row, c_row, columns);
  }
  for (; r + 4 <= rows; r += 4) {
    Rows<4, 2>(a + r * a_row, a_row, b, b_row, depth, c + r * c_row, c_row, columns);
  }
  for (; r < rows; ++r) {
    Rows<1, 8>(a + r * a_row, a_row, b, b_row, depth, c + r * c_row, c_row, columns);
  }
}

// to[depth][keys, padded with zeros] = from[keys][depth]
PFB_AVX512 void Transpose(const float* from, std::size_t row, std::size_t keys, std::size_t depth,
                          float* to) {
  const std::size_t padded = RoundUp(keys);
  for (std::size_t k = 0; k < padded; k += kLanes) {
    const std::size_t real = std::min<std::size_t>(kLanes, k < keys ? keys - k : 0);
    for (std::size_t d = 0; d < depth; ++d) {
      float* column = to + d * padded + k;
      for (std::size_t i = 0; i < real; ++i) column[i] = from[(k + i) * row + d];
      for (std::size_t i = real; i < kLanes; ++i) column[i] = 0.0F;
    }
  }
}

PFB_AVX512 void Pad(const float* from, std::size_t row, std::size_t keys, std::size_t depth,
                    float* to) {
  const std::size_t padded = RoundUp(depth);
  for (std::size_t k = 0; k < keys; ++k) {
    std::copy_n(from + k * row, depth, to + k * padded);
    std::fill(to + k * padded + depth, to + (k + 1) * padded, 0.0F);
  }
}

// 2^x, to about one unit in the last place; zero below 2^-149, not-a-number stays.
PFB_AVX512 inline __m512 Exp2(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(-160.0F), x);  // in this order it lets not-a-number through
  const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 r = _mm512_sub_ps(x, n);
  // The polynomial of least relative error on [-1/2, 1/2]: 2e-9.
  __m512 p = _mm512_set1_ps(1.534581180e-4F);
  for (const float c : {1.339993142e-3F, 9.618488960e-3F, 5.550328776e-2F, 2.402264689e-1F,
                        6.931472057e-1F, 1.0F}) {
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c));
  }
  return _mm512_scalef_ps(p, n);
}

// scores = exp(scale * scores + mask - the largest of those); returns 1 / their sum.  What lies
// behind `count` becomes zero.
PFB_AVX512 float Softmax(float* scores, std::size_t count, float scale, const float* mask) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity(), kLog2E = 1.44269504088896341F;
  const std::size_t whole = count / kLanes * kLanes;
  const auto tail = static_cast<__mmask16>((1U << (count - whole)) - 1);
  const __m512 factor = _mm512_set1_ps(scale);
  __m512 largest = _mm512_set1_ps(kLowest);
  if (count > whole) {
    // Columns that are not there are columns that nobody sees.
    __m512 x = _mm512_mul_ps(_mm512_load_ps(scores + whole), factor);
    if (mask != nullptr) x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(tail, mask + whole));
    largest = _mm512_mask_mov_ps(largest, tail, x);
    _mm512_store_ps(scores + whole, largest);
  }
  for (std::size_t i = 0; i < whole; i += kLanes) {
    __m512 x = _mm512_mul_ps(_mm512_load_ps(scores + i), factor);
    if (mask != nullptr) x = _mm512_add_ps(x, _mm512_loadu_ps(mask + i));
    _mm512_store_ps(scores + i, x);
    largest = _mm512_max_ps(x, largest);  // ignores not-a-number, which the sum will show
  }
  const __m512 log2e = _mm512_set1_ps(kLog2E);
  const __m512 top = _mm512_mul_ps(_mm512_set1_ps(_mm512_reduce_max_ps(largest)), log2e);
  __m512 sums = _mm512_setzero_ps();
  for (std::size_t i = 0; i < count; i += kLanes) {
    const __m512 e = Exp2(_mm512_fmsub_ps(_mm512_load_ps(scores + i), log2e, top));
    _mm512_store_ps(scores + i, e);
    sums = _mm512_add_ps(sums, e);
  }
  return 1.0F / _mm512_reduce_add_ps(sums);
}

PFB_AVX512 void ScaleRow(const float* x, float factor, std::size_t count, float* y) {
  for (std::size_t i = 0; i < count; ++i) y[i] = x[i] * factor;
}

}  // namespace

std::size_t AttentionShape::work() const {
  return depth * RoundUp(keys) + keys * RoundUp(value_depth) +
         kAttentionRows * (RoundUp(keys) + RoundUp(value_depth));
}

bool AttentionSupported() { return HasAvx512(); }

void RunAttention(const AttentionShape& s, const AttentionArguments& p, int threads) {
  const std::size_t blocks = s.blocks.size(), units = s.batches * s.heads * blocks;
  const std::size_t keys = RoundUp(s.keys), width = RoundUp(s.value_depth);
  ParallelTeam(threads, [&](int thread, int team) {
    float* packed_keys = p.work + static_cast<std::size_t>(thread) * s.work();
    float* packed_values = packed_keys + s.depth * keys;
    float* scores = packed_values + s.keys * width;
    float* sums = scores + kAttentionRows * keys;
    std::size_t packed = s.batches * s.heads;
    const std::size_t end = units * (thread + 1) / team;
    for (std::size_t unit = units * thread / team; unit < end; ++unit) {
      const std::size_t head = unit / blocks, b = head / s.heads, h = head % s.heads;
      const float* value = p.value + b * s.value.batch + h * s.value.head;
      if (head != packed) {
        Transpose(p.key + b * s.key.batch + h * s.key.head, s.key.row, s.keys, s.depth,
                  packed_keys);
        if (width != s.value_depth) Pad(value, s.value.row, s.keys, s.value_depth, packed_values);
        packed = head;
      }
      const bool padded = width != s.value_depth;
      const float* values = padded ? packed_values : value;
      const std::size_t value_row = padded ? width : s.value.row;
      const VisibleKeys& block = s.blocks[unit % blocks];
      const std::size_t first = block.first / kLanes * kLanes, rows = block.end - block.begin;
      const std::size_t seen = block.last - first;
      const float* query =
          p.query + b * s.query.batch + h * s.query.head + block.begin * s.query.row;
      Product(query, s.query.row, packed_keys + first, keys, s.depth, scores, keys, rows,
              RoundUp(seen));
      float factors[kAttentionRows];
      for (std::size_t r = 0; r < rows; ++r) {
        const float* mask = nullptr;
        if (s.masked) {
          mask =
              p.mask + b * s.mask.batch + h * s.mask.head + (block.begin + r) * s.mask.row + first;
        }
        factors[r] = Softmax(scores + r * keys, seen, s.scale, mask);
      }
      Product(scores, keys, values + first * value_row, value_row, seen, sums, width, rows, width);
      float* result =
          p.result + b * s.result.batch + h * s.result.head + block.begin * s.result.row;
      for (std::size_t r = 0; r < rows; ++r) {
        ScaleRow(sums + r * width, factors[r], s.value_depth, result + r * s.result.row);
      }
    }
  });
}

}  // namespace pfb
