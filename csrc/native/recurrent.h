// LSTM and GRU layers for few sequences at a time, by loops of our own.
//
// With a batch of one to a few, a step of a recurrent layer is a product of a matrix and a vector:
// what counts is to stream the matrix from the cache and to do nothing between two steps.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pfb {

enum class Cell { kLstm, kGru };

// A sequence shorter than the others leaves its states alone and its result zero where it has no
// steps; backwards it begins at its own end.
//
// Sequences and directions are independent and go to different threads; a single one is shared by
// units, its threads meeting after every step.
struct RecurrentShape {
  Cell cell;
  int steps;
  int batch;
  int directions;
  int hidden;

  // So many threads gain something.
  int UsefulThreads() const;

  int gates() const { return cell == Cell::kLstm ? 4 : 3; }
  // Hidden units in a block of the packed matrix, and the units with those that fill the last one.
  static int Block();
  int padded() const { return (hidden + Block() - 1) / Block() * Block(); }
  // Floats of the packed matrix.
  std::size_t packed_size() const {
    return static_cast<std::size_t>(directions) * hidden * gates() * padded();
  }
};

struct RecurrentArguments {
  const float* gates;           // [steps, batch, directions, gates, padded]: x W + b
  const float* recurrence;      // [directions, blocks, hidden, gates, Block()]
  const float* bias;            // of GRU: [directions, padded], added to h R_n
  const float* hidden;          // [directions, batch, hidden], or none: zeros
  const float* cell;            // as `hidden`, of LSTM
  float* result;                // [steps, batch, directions, hidden]
  float* final_hidden;          // [directions, batch, hidden], or none
  float* final_cell;            // as `final_hidden`, of LSTM
  const std::int64_t* lengths;  // [batch], or none: all steps are real
  float* work;                  // [directions, batch, padded], of LSTM: the cell states
};

// Whether this processor has the vector instructions that the loops are written for.
bool RecurrentSupported();

// Runs the layer on the calling thread's OpenMP team.
void RunRecurrent(const RecurrentShape& shape, const RecurrentArguments& arguments);

}  // namespace pfb
