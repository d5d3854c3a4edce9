// How much free memory is worth keeping: what was in use at once a moment ago may be again.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace pfb::memory {

class Decay {
 public:
  // `period_ms` 0: everything is kept for ever.
  explicit Decay(std::uint32_t period_ms) : period_ms_(period_ms) {}

  // Notes that `used` bytes are in use at the time `now_ms`.  True once in each period.
  bool Note(std::size_t used, std::uint64_t now_ms) {
    most_ = std::max(most_, used);
    if (++notes_ < kLeastNotes || now_ms - started_ms_ < period_ms_) return false;
    before_ = most_;
    most_ = used;
    started_ms_ = now_ms;
    notes_ = 0;
    return true;
  }

  bool on() const { return period_ms_ != 0; }

  // The most that was in use at once in the period that has just ended and in this one.
  std::size_t recent() const { return std::max(most_, before_); }

  // Whether so much is held that giving some back is worth its price: the needs of one period and
  // the next differ, and memory that is given back and taken again costs a page fault per page.
  bool TooMuch(std::size_t held) const { return held > recent() + recent() / 2 + kSlack; }

 private:
  // However long one call of a network takes, a period sees a few: what is in use goes up and down
  // within each.
  static constexpr int kLeastNotes = 512;
  static constexpr std::size_t kSlack = std::size_t{16} << 20;

  const std::uint32_t period_ms_;
  std::uint64_t started_ms_ = 0;
  int notes_ = 0;
  std::size_t most_ = 0, before_ = 0;
};

}  // namespace pfb::memory
