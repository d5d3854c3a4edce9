// Attention in one step: softmax(scale * q k^T + mask) v, a few queries at a time.
//
// As three steps the scores go through memory twice, and every product packs its operands again.
// Here a thread packs the keys of one head, and for a block of queries at a time has the scores,
// their softmax and the product with the values in its first cache.
#pragma once

#include <cstddef>
#include <vector>

namespace pfb {

// Elements from one to the next; a stride of 0 repeats.
struct AttentionStrides {
  std::size_t batch, head, row;
};

// Queries [begin, end) that see keys [first, last) only.
struct VisibleKeys {
  std::size_t begin, end, first, last;
};

struct AttentionShape {
  std::size_t batches, heads, keys;
  std::size_t depth;        // of queries and keys
  std::size_t value_depth;  // of values and the result
  float scale;
  AttentionStrides query, key, value, result;  // the last dimension is contiguous in all of them
  bool masked;
  AttentionStrides mask;
  // Which keys are looked at; cover the queries in order.
  std::vector<VisibleKeys> blocks;

  // Floats of working memory for one thread.
  std::size_t work() const;
};

struct AttentionArguments {
  const float* query;
  const float* key;
  const float* value;
  const float* mask;  // or none
  float* result;
  float* work;  // shape.work() for each of `threads`
};

// Queries per block: as many as fill the registers of the inner loops.
constexpr std::size_t kAttentionRows = 32;

bool AttentionSupported();

void RunAttention(const AttentionShape& shape, const AttentionArguments& arguments, int threads);

}  // namespace pfb
