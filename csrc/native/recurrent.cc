#include "recurrent.h"

#include <algorithm>
#include <cstring>

#include "parallel.h"
#include "simd.h"

namespace pfb {
namespace {

// Vectors of hidden units that are worked on together: with all gates they hide the latency of
// multiply-add, and with a few rows they still fit the registers.
constexpr int kUnits = 2;
constexpr int kRows = 3;
constexpr int kBlock = kUnits * kLanes;

// Where the rows (sequences) of one block are read and written; `*_step` is from row to row.
struct Rows {
  const float* gates;
  std::size_t gates_step;
  const float* hidden;  // the state before, from its first unit on; none: zeros
  std::size_t hidden_step;
  std::size_t first;  // unit of the block
  float* cell;
  std::size_t cell_step;
  float* result;
  std::size_t result_step;
};

PFB_INLINE void StoreUnits(const Vec& from, float* to, int count) {
  if (count >= kLanes) {
    Store(from, to);
  } else if (count > 0) {
    std::memcpy(to, &from, static_cast<std::size_t>(count) * sizeof(float));
  }
}

// One step of kBlock hidden units for B rows.  `matrix` is [hidden][gates][kBlock]; `units` of the
// block are real.
template <Cell kCell, int B>
PFB_INLINE void StepBlock(const RecurrentShape& shape, const Rows& rows, const float* matrix,
                          const float* bias, int units) {
  constexpr int kGates = kCell == Cell::kLstm ? 4 : 3;
  const auto padded = static_cast<std::size_t>(shape.padded());
  Vec sum[B][kGates][kUnits];
  for (int b = 0; b < B; ++b) {
    for (int g = 0; g < kGates; ++g) {
      for (int u = 0; u < kUnits; ++u) {
        const float* gate = rows.gates + static_cast<std::size_t>(b) * rows.gates_step +
                            static_cast<std::size_t>(g) * padded + u * kLanes;
        // The new content of a GRU takes its input part only after the reset gate.
        Load(kCell == Cell::kGru && g == 2 ? bias + u * kLanes : gate, sum[b][g][u]);
      }
    }
  }
  if (rows.hidden != nullptr) {
    for (int k = 0; k < shape.hidden; ++k) {
      Vec weights[kGates][kUnits];
      for (int g = 0; g < kGates; ++g) {
        for (int u = 0; u < kUnits; ++u) Load(matrix + g * kBlock + u * kLanes, weights[g][u]);
      }
      matrix += kGates * kBlock;
      for (int b = 0; b < B; ++b) {
        const float state = rows.hidden[static_cast<std::size_t>(b) * rows.hidden_step + k];
        for (int g = 0; g < kGates; ++g) {
          for (int u = 0; u < kUnits; ++u) sum[b][g][u] += state * weights[g][u];
        }
      }
    }
  }
  for (int b = 0; b < B; ++b) {
    const auto row = static_cast<std::size_t>(b);
    for (int u = 0; u < kUnits; ++u) {
      const int left = units - u * kLanes;
      Vec(&gate)[kGates][kUnits] = sum[b];
      Vec state;
      if constexpr (kCell == Cell::kLstm) {
        float* cell = rows.cell + row * rows.cell_step + u * kLanes;
        Vec input, forget, content, output, before;
        Sigmoid(gate[0][u], input);
        Sigmoid(gate[1][u], forget);
        Tanh(gate[2][u], content);
        Sigmoid(gate[3][u], output);
        Load(cell, before);
        const Vec after = forget * before + input * content;
        Store(after, cell);
        Tanh(after, state);
        state = output * state;
      } else {
        Vec update, reset, content, before = {};
        Sigmoid(gate[0][u], update);
        Sigmoid(gate[1][u], reset);
        Load(rows.gates + row * rows.gates_step + 2 * padded + u * kLanes, content);
        content += reset * gate[2][u];
        Tanh(content, content);
        if (rows.hidden != nullptr && left > 0) {
          const auto count = static_cast<std::size_t>(std::min(left, kLanes));
          std::memcpy(&before, rows.hidden + row * rows.hidden_step + rows.first + u * kLanes,
                      count * sizeof(float));
        }
        state = update * (before - content) + content;
      }
      StoreUnits(state, rows.result + row * rows.result_step + u * kLanes, left);
    }
  }
}

// A part of a layer: rows [row, row_end) of one direction, blocks [block, block_end) of its units.
struct Part {
  int direction;
  int row, row_end;
  int block, block_end;
};

// The steps of one sequence; a number out of range is taken as the nearest in it.
PFB_INLINE std::size_t LengthOf(const RecurrentShape& shape, const RecurrentArguments& a, int row) {
  const std::int64_t length = a.lengths[row];
  return length < 0             ? 0
         : length > shape.steps ? static_cast<std::size_t>(shape.steps)
                                : static_cast<std::size_t>(length);
}

template <Cell kCell>
PFB_INLINE void StepPart(const RecurrentShape& shape, const RecurrentArguments& a, const Part& part,
                         int step) {
  const auto size = [](int count) { return static_cast<std::size_t>(count); };
  const std::size_t padded = size(shape.padded());
  const std::size_t gates = size(shape.gates()) * padded;
  const std::size_t hidden = size(shape.hidden);
  const std::size_t directions = size(shape.directions), batch = size(shape.batch);
  const std::size_t direction = size(part.direction);
  const bool backward = part.direction == 1;
  const std::size_t now = size(backward ? shape.steps - 1 - step : step);
  for (int row = part.row, count; row < part.row_end; row += count) {
    // Sequences of their own length each begin and end for themselves.
    count = a.lengths == nullptr ? std::min(kRows, part.row_end - row) : 1;
    const std::size_t r = size(row);
    const std::size_t length = a.lengths == nullptr ? size(shape.steps) : LengthOf(shape, a, row);
    if (now >= length) {
      const std::size_t first = size(part.block) * kBlock;
      const std::size_t last = std::min(size(part.block_end) * kBlock, hidden);
      std::fill(a.result + ((now * batch + r) * directions + direction) * hidden + first,
                a.result + ((now * batch + r) * directions + direction) * hidden + last, 0.0F);
      continue;
    }
    const bool begins = backward ? now + 1 == length : now == 0;
    Rows rows;
    rows.gates_step = directions * gates;
    rows.result_step = directions * hidden;
    rows.cell_step = padded;
    const auto sequence = [&](std::size_t time) {
      return (time * batch + r) * rows.result_step + direction * hidden;
    };
    if (begins) {
      const std::size_t initial = (direction * batch + r) * hidden;
      rows.hidden = a.hidden == nullptr ? nullptr : a.hidden + initial;
      rows.hidden_step = hidden;
    } else {
      rows.hidden = a.result + sequence(backward ? now + 1 : now - 1);
      rows.hidden_step = rows.result_step;
    }
    for (int block = part.block; block < part.block_end; ++block) {
      const std::size_t first = size(block) * kBlock;
      rows.first = first;
      rows.gates = a.gates + ((now * batch + r) * directions + direction) * gates + first;
      rows.cell =
          kCell == Cell::kLstm ? a.work + (direction * batch + r) * padded + first : nullptr;
      rows.result = a.result + sequence(now) + first;
      const float* matrix = a.recurrence + direction * hidden * gates +
                            size(block) * hidden * size(shape.gates()) * kBlock;
      const float* bias = kCell == Cell::kGru ? a.bias + direction * padded + first : nullptr;
      const int units = shape.hidden - static_cast<int>(first);
      if (count == 1) StepBlock<kCell, 1>(shape, rows, matrix, bias, units);
      if (count == 2) StepBlock<kCell, 2>(shape, rows, matrix, bias, units);
      if (count == 3) StepBlock<kCell, 3>(shape, rows, matrix, bias, units);
    }
  }
}

PFB_AVX512 void StepAvx512(const RecurrentShape& s, const RecurrentArguments& a, const Part& part,
                           int step) {
  s.cell == Cell::kLstm ? StepPart<Cell::kLstm>(s, a, part, step)
                        : StepPart<Cell::kGru>(s, a, part, step);
}

PFB_AVX2 void StepAvx2(const RecurrentShape& s, const RecurrentArguments& a, const Part& part,
                       int step) {
  s.cell == Cell::kLstm ? StepPart<Cell::kLstm>(s, a, part, step)
                        : StepPart<Cell::kGru>(s, a, part, step);
}

// The cell states from or to their unpadded form, for the rows of a part.
void CopyCells(const RecurrentShape& shape, const Part& part, const float* from, float* to,
               int from_step, int to_step) {
  for (int row = part.row; row < part.row_end; ++row) {
    const auto place = static_cast<std::size_t>(part.direction * shape.batch + row);
    float* target = to + place * static_cast<std::size_t>(to_step);
    std::fill_n(target, to_step, 0.0F);
    if (from == nullptr) continue;
    std::copy_n(from + place * static_cast<std::size_t>(from_step), shape.hidden, target);
  }
}

void BeginPart(const RecurrentShape& shape, const RecurrentArguments& a, const Part& part) {
  if (shape.cell != Cell::kLstm) return;
  CopyCells(shape, part, a.cell, a.work, shape.hidden, shape.padded());
}

void EndPart(const RecurrentShape& shape, const RecurrentArguments& a, const Part& part) {
  const auto hidden = static_cast<std::size_t>(shape.hidden);
  if (a.final_cell != nullptr) {
    CopyCells(shape, part, a.work, a.final_cell, shape.padded(), shape.hidden);
  }
  if (a.final_hidden == nullptr) return;
  const auto directions = static_cast<std::size_t>(shape.directions);
  const auto batch = static_cast<std::size_t>(shape.batch);
  const auto direction = static_cast<std::size_t>(part.direction);
  for (int row = part.row; row < part.row_end; ++row) {
    const auto r = static_cast<std::size_t>(row);
    const std::size_t length =
        a.lengths == nullptr ? static_cast<std::size_t>(shape.steps) : LengthOf(shape, a, row);
    const std::size_t state = (direction * batch + r) * hidden;
    if (length == 0) {
      if (a.hidden == nullptr) {
        std::fill_n(a.final_hidden + state, hidden, 0.0F);
      } else {
        std::copy_n(a.hidden + state, hidden, a.final_hidden + state);
      }
      continue;
    }
    const std::size_t last = part.direction == 1 ? 0 : length - 1;
    std::copy_n(a.result + ((last * batch + r) * directions + direction) * hidden, hidden,
                a.final_hidden + state);
  }
}

// Bytes of the matrix that a thread must read per step to be worth a meeting: the threads' parts of
// the state travel from one processor's cache to the other's, which takes over half a microsecond.
constexpr std::size_t kShare = 192 << 10;

}  // namespace

int RecurrentShape::Block() { return kBlock; }

bool RecurrentSupported() { return HasAvx512() || HasAvx2(); }

int RecurrentShape::UsefulThreads() const {
  const std::size_t bytes = packed_size() * sizeof(float);
  const int sequences = directions * batch;
  // A layer is hardly ever so short that two threads of their own would not pay.
  if (sequences > 1) return bytes * static_cast<std::size_t>(steps) < kShare ? 1 : sequences;
  return std::clamp(static_cast<int>(bytes / kShare), 1, padded() / kBlock);
}

void RunRecurrent(const RecurrentShape& shape, const RecurrentArguments& arguments) {
  const auto advance = HasAvx512() ? StepAvx512 : StepAvx2;
  const int blocks = shape.padded() / kBlock;
  const auto run = [&](const Part& part) {
    BeginPart(shape, arguments, part);
    for (int step = 0; step < shape.steps; ++step) advance(shape, arguments, part, step);
    EndPart(shape, arguments, part);
  };
  const int sequences = shape.directions * shape.batch;
  if (sequences > 1) {
    // Directions and sequences are independent.
    const int chunks = std::clamp(MaxThreads() / shape.directions, 1, shape.batch);
    const auto parts = static_cast<std::size_t>(shape.directions * chunks);
    ParallelFor(parts, [&](std::size_t begin, std::size_t end) {
      for (auto i = static_cast<int>(begin); i < static_cast<int>(end); ++i) {
        const int chunk = i % chunks;
        run({i / chunks, shape.batch * chunk / chunks, shape.batch * (chunk + 1) / chunks, 0,
             blocks});
      }
    });
    return;
  }
  BeginPart(shape, arguments, {0, 0, 1, 0, blocks});
  Meeting meeting;
  ParallelTeam(std::min(shape.UsefulThreads(), MaxThreads()), [&](int thread, int threads) {
    const Part part = {0, 0, 1, blocks * thread / threads, blocks * (thread + 1) / threads};
    for (int step = 0; step < shape.steps; ++step) {
      advance(shape, arguments, part, step);
      meeting.Wait(threads);
    }
  });
  EndPart(shape, arguments, {0, 0, 1, 0, blocks});
}

}  // namespace pfb
