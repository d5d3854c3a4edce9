// Normalisations by loops of our own: RMS norm of rows, group and instance norm of images.
#pragma once

#include <cstddef>
#include <vector>

#include "step.h"

namespace pfb {

// y = x / sqrt(mean(x^2) + epsilon) [* scale], per row.  Arguments: source, result, scale where
// `scaled`.
Kernel RmsNormKernel(std::size_t rows, std::size_t columns, float epsilon, bool scaled);

// Layer norm of sums of rows: of tables, by number, and dense ones.
struct EmbeddingNormShape {
  std::size_t rows, columns;
  std::vector<bool> wide;               // per table: ids are int64, else int32
  std::vector<std::size_t> table_rows;  // per table
  std::vector<std::size_t> dense_rows;  // per dense operand: row i is added to i, i + rows, ...
  float epsilon;
  bool scaled, shifted, keeps_sum;
};

// Arguments: result, (ids, table) per table, dense operands, then scale, shift, the sum where there
// are any.  Throws std::out_of_range for an id that a table does not have.
Kernel EmbeddingNormKernel(EmbeddingNormShape shape);

// Group norm; with as many groups as channels it is instance norm.
struct GroupNormShape {
  std::size_t batch, channels, pixels, groups;
  bool channels_last;
  bool scaled, shifted;
  float epsilon;
  std::size_t chunks;  // of pixels, each summed up on its own

  // Floats of working memory.
  std::size_t work() const { return (chunks + 2) * channels; }
};

// Arguments: source, result, working memory, then scale and shift where there are any.
Kernel GroupNormKernel(const GroupNormShape& shape);

}  // namespace pfb
