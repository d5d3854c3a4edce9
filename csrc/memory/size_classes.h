// The sizes of small blocks: multiples of 64, four to each doubling, so that at most a fifth of a
// block above 256 bytes is lost to rounding.
#pragma once

#include <cstddef>

namespace pfb::memory {

constexpr std::size_t kBlockAlignment = 64;
constexpr std::size_t kLargestSmall = 32 * 1024;
constexpr int kSizeClasses = 4 + 7 * 4;

// The class of the smallest block that holds `bytes`, 1 <= bytes <= kLargestSmall.
inline int ClassOf(std::size_t bytes) {
  if (bytes <= 256) return static_cast<int>((bytes - 1) / 64);
  const int log = 63 - __builtin_clzll(bytes - 1);
  return 4 + (log - 8) * 4 + static_cast<int>(((bytes - 1) >> (log - 2)) & 3);
}

// Bytes of a block of class `index`.
constexpr std::size_t ClassBytes(int index) {
  if (index < 4) return static_cast<std::size_t>(index + 1) * 64;
  const int log = 8 + (index - 4) / 4;
  return (std::size_t{1} << log) + (static_cast<std::size_t>((index - 4) % 4 + 1) << (log - 2));
}

static_assert(ClassBytes(kSizeClasses - 1) == kLargestSmall);

}  // namespace pfb::memory
