#include "placement_search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace {

constexpr double kLongestRun = 0.7;  // seconds
constexpr int64_t kNoWall = std::numeric_limits<int64_t>::max();

struct Buffer {
  int64_t size;
  uint32_t first, end;  // alive at the steps [first, end)
};

// How much a snug fit counts against priorities, which lie in [0, 1].
struct Fit {
  double edge;   // for each end of the valley at which the buffer ends too
  double level;  // for closing up with the neighbour's height
};

// One placement, built from the bottom up along the skyline, as in Burke, Kendall and Whitwell's
// best-fit heuristic for strip packing (2004) and in MiniMalloc (Moffitt, 2023): the lowest valley
// gets the best of the buffers that fit into it; where none does it is filled up to its lower wall.
// Lifetimes fix a buffer's place in time, so that what matters is a valley's exact span: a buffer
// that meets its walls leaves no narrow gap behind.
class Skyline {
 public:
  Skyline(std::vector<Buffer> buffers, uint32_t steps)
      : buffers_(std::move(buffers)), load_(steps), starting_(steps), offsets_(buffers_.size()) {
    for (size_t i = 0; i < buffers_.size(); ++i) {
      starting_[buffers_[i].first].push_back(i);
      for (uint32_t t = buffers_[i].first; t < buffers_[i].end; ++t) load_[t] += buffers_[i].size;
    }
  }

  const std::vector<Buffer>& buffers() const { return buffers_; }
  const std::vector<int64_t>& offsets() const { return offsets_; }

  // The arena's size.
  int64_t Place(const std::vector<double>& priorities, const Fit& fit) {
    height_.assign(load_.size(), 0);
    waiting_ = load_;
    placed_.assign(buffers_.size(), 0);
    int64_t top = 0;
    for (size_t left = buffers_.size(); left > 0;) {
      const Valley valley = LowestValley();
      const ptrdiff_t best = BestFor(valley, priorities, fit);
      if (best < 0) {
        std::fill(height_.begin() + valley.begin, height_.begin() + valley.end,
                  std::min(valley.left_wall, valley.right_wall));
        continue;
      }
      top = std::max(top, Put(best));
      --left;
    }
    return top;
  }

  // How far the last placement rises above `bound`: squares of relative heights, over all steps. It
  // tells placements of the same size apart.
  double Excess(int64_t bound) const {
    double sum = 0;
    for (const int64_t height : height_) {
      const double excess = double(height - bound) / double(bound);
      if (excess > 0) sum += excess * excess;
    }
    return sum;
  }

 private:
  struct Valley {
    uint32_t begin, end;
    int64_t floor, left_wall, right_wall;
  };

  // The lowest stretch in which buffers still wait for a place.
  Valley LowestValley() const {
    const uint32_t steps = uint32_t(height_.size());
    uint32_t lowest = steps;
    for (uint32_t t = 0; t < steps; ++t) {
      if (waiting_[t] > 0 && (lowest == steps || height_[t] < height_[lowest])) lowest = t;
    }
    const int64_t floor = height_[lowest];
    uint32_t begin = lowest, end = lowest + 1;
    while (begin > 0 && height_[begin - 1] <= floor) --begin;
    while (end < steps && height_[end] <= floor) ++end;
    return {begin, end, floor, begin > 0 ? height_[begin - 1] : kNoWall,
            end < steps ? height_[end] : kNoWall};
  }

  ptrdiff_t BestFor(const Valley& valley, const std::vector<double>& priorities,
                    const Fit& fit) const {
    ptrdiff_t best = -1;
    double best_score = 0;
    for (uint32_t t = valley.begin; t < valley.end; ++t) {
      for (const size_t i : starting_[t]) {
        const Buffer& buffer = buffers_[i];
        if (placed_[i] || buffer.end > valley.end) continue;
        const bool left = t == valley.begin, right = buffer.end == valley.end;
        const int64_t top = valley.floor + buffer.size;
        const bool level = (left && top == valley.left_wall) || (right && top == valley.right_wall);
        const double score = priorities[i] + fit.edge * (left + right) + (level ? fit.level : 0.0);
        if (best < 0 || score > best_score) {
          best = ptrdiff_t(i);
          best_score = score;
        }
      }
    }
    return best;
  }

  // The new height.  A valley's steps may lie below its floor where nothing waits any more.
  int64_t Put(size_t index) {
    const Buffer& buffer = buffers_[index];
    const auto begin = height_.begin() + buffer.first, end = height_.begin() + buffer.end;
    offsets_[index] = *std::max_element(begin, end);
    const int64_t top = offsets_[index] + buffer.size;
    std::fill(begin, end, top);
    for (uint32_t t = buffer.first; t < buffer.end; ++t) waiting_[t] -= buffer.size;
    placed_[index] = 1;
    return top;
  }

  const std::vector<Buffer> buffers_;
  std::vector<int64_t> load_;                  // per step: bytes alive
  std::vector<std::vector<size_t>> starting_;  // per step: buffers whose life begins there
  std::vector<int64_t> offsets_;               // of the last placement, as all below
  std::vector<int64_t> height_, waiting_;      // per step: the skyline; bytes not yet placed
  std::vector<char> placed_;
};

// Priorities that have proved good starts: ranks by lifetime, area, size, and a mixture.
std::vector<std::vector<double>> Starts(const std::vector<Buffer>& buffers) {
  const size_t count = buffers.size();
  std::vector<std::vector<double>> starts;
  for (int kind = 0; kind < 4; ++kind) {
    std::vector<double> value(count);
    for (size_t i = 0; i < count; ++i) {
      const double life = buffers[i].end - buffers[i].first, size = double(buffers[i].size);
      value[i] = kind == 0   ? life
                 : kind == 1 ? life * size
                 : kind == 2 ? size
                             : life * life * std::sqrt(size);
    }
    std::vector<size_t> order(count);
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return value[a] < value[b]; });
    std::vector<double> rank(count);
    for (size_t i = 0; i < count; ++i) rank[order[i]] = double(i) / double(count);
    starts.push_back(std::move(rank));
  }
  return starts;
}

// Simulated annealing over the priorities.  Most moves are those of squeaky wheel optimisation
// (Joslin and Clements, 1999): what has come to lie too high is taken sooner.
class Search {
 public:
  Search(Skyline skyline, int64_t bound, uint64_t seed)
      : skyline_(std::move(skyline)), bound_(bound), random_(seed) {}

  int64_t best() const { return best_; }
  const std::vector<int64_t>& offsets() const { return offsets_; }

  void Anneal(const Fit& fit, double seconds) {
    const auto started = std::chrono::steady_clock::now();
    const auto passed = [&] {
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - started;
      return time.count() / seconds;
    };
    current_excess_ = std::numeric_limits<double>::infinity();
    for (std::vector<double>& start : Starts(skyline_.buffers())) {
      const double excess = Try(start, fit);
      if (excess < current_excess_) MoveTo(std::move(start), excess);
    }
    const double start_temperature = 0.05 * current_excess_;
    for (double time = passed(); time < 1 && best_ > bound_; time = passed()) {
      const double temperature = start_temperature * (1 - time) * (1 - time);
      std::vector<double> trial = Neighbour();
      const double excess = Try(trial, fit);
      const double worse = excess - current_excess_;
      if (worse <= 0 || Uniform() < std::exp(-worse / temperature)) {
        MoveTo(std::move(trial), excess);
      }
    }
  }

 private:
  double Uniform() { return std::uniform_real_distribution<double>(0, 1)(random_); }

  double Try(const std::vector<double>& priorities, const Fit& fit) {
    const int64_t size = skyline_.Place(priorities, fit);
    if (size < best_) {
      best_ = size;
      offsets_ = skyline_.offsets();
    }
    return skyline_.Excess(bound_);
  }

  // Where a start or an accepted trial begins to be searched from.
  void MoveTo(std::vector<double> priorities, double excess) {
    current_ = std::move(priorities);
    current_excess_ = excess;
    too_high_.clear();
    for (size_t i = 0; i < current_.size(); ++i) {
      if (skyline_.offsets()[i] + skyline_.buffers()[i].size > bound_) too_high_.push_back(i);
    }
  }

  std::vector<double> Neighbour() {
    std::vector<double> priorities = current_;
    if (!too_high_.empty() && Uniform() < 0.6) {
      priorities[too_high_[Below(too_high_.size())]] += Uniform();
      return priorities;
    }
    // Else one priority, or a few: mostly a little, sometimes anywhere.
    const int moves = Uniform() < 0.5 ? 1 : 1 + int(4 * Uniform());
    for (int move = 0; move < moves; ++move) {
      double& priority = priorities[Below(priorities.size())];
      const double near = priority + 0.2 * (Uniform() - 0.5);
      priority = Uniform() < 0.7 ? std::clamp(near, 0.0, 1.0) : Uniform();
    }
    return priorities;
  }

  size_t Below(size_t count) { return size_t(Uniform() * double(count)); }

  Skyline skyline_;
  const int64_t bound_;
  std::mt19937_64 random_;
  int64_t best_ = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> offsets_;  // of the best
  std::vector<double> current_;
  double current_excess_ = 0;
  std::vector<size_t> too_high_;  // buffers that rise above the bound in the current placement
};

}  // namespace

int64_t pfb_search_placement(uint32_t count, const int64_t* sizes, const uint32_t* first,
                             const uint32_t* end, uint32_t steps, int64_t bound, double seconds,
                             uint64_t seed, int64_t* offsets) {
  std::vector<Buffer> buffers(count);
  for (uint32_t i = 0; i < count; ++i) buffers[i] = {sizes[i], first[i], end[i]};
  Search search(Skyline(std::move(buffers), steps), bound, seed);
  // Which weights suit an instance is not known beforehand, and several short runs go further than
  // a long one.
  const Fit fits[] = {{1, 1}, {1, 2}};
  const int runs = std::max(2, int(seconds / kLongestRun));
  for (int run = 0; run < runs; ++run) search.Anneal(fits[run % 2], seconds / runs);
  std::copy(search.offsets().begin(), search.offsets().end(), offsets);
  return search.best();
}
