// How much memory a pool holds from the system, and how much it may.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pfb::memory {

class Budget {
 public:
  // `limit` 0: none.
  explicit Budget(std::size_t limit) : limit_(limit == 0 ? SIZE_MAX : limit) {}

  // Counts `bytes` as held; false, and nothing is counted, when that is beyond the limit.
  bool Take(std::size_t bytes) {
    std::size_t held = held_.load(std::memory_order_relaxed);
    do {
      if (bytes > limit_ || held > limit_ - bytes) return false;
    } while (!held_.compare_exchange_weak(held, held + bytes, std::memory_order_relaxed));
    held += bytes;
    std::size_t most = most_.load(std::memory_order_relaxed);
    while (held > most && !most_.compare_exchange_weak(most, held, std::memory_order_relaxed)) {
    }
    return true;
  }

  // `bytes` went back to the system.
  void Give(std::size_t bytes) {
    held_.fetch_sub(bytes, std::memory_order_relaxed);
    released_.fetch_add(bytes, std::memory_order_relaxed);
  }

  // What was taken was not used after all.
  void Cancel(std::size_t bytes) { held_.fetch_sub(bytes, std::memory_order_relaxed); }

  std::size_t held() const { return held_.load(std::memory_order_relaxed); }
  std::size_t most() const { return most_.load(std::memory_order_relaxed); }
  std::uint64_t released() const { return released_.load(std::memory_order_relaxed); }

 private:
  const std::size_t limit_;
  std::atomic<std::size_t> held_{0}, most_{0};
  std::atomic<std::uint64_t> released_{0};
};

}  // namespace pfb::memory
