// A range of addresses that is reserved at once and backed by memory as it is needed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pfb::memory {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

constexpr std::size_t RoundUp(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

enum class HugePages { kNone, kTransparent, kExplicit };

class Region {
 public:
  // Reserves `bytes` (rounded up to 2 MiB) or, where the system refuses, half of it, and so on.
  // base() is null when not even `least` could be had.
  Region(std::size_t bytes, std::size_t least, HugePages huge);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  char* base() const { return base_; }
  std::size_t bytes() const { return bytes_; }
  bool Contains(const void* address) const {
    return static_cast<std::size_t>(static_cast<const char*>(address) - base_) < bytes_;
  }

  // Makes the first `bytes` of the range usable.  False when the system refuses.
  bool CommitUpTo(std::size_t bytes);
  std::size_t committed() const { return committed_; }

  // Gives pages back to the system; they read as zeros when next touched.  Returns the bytes, which
  // with explicit huge pages are fewer.
  std::size_t Release(std::size_t offset, std::size_t bytes);

  std::uint64_t huge_refused() const { return huge_refused_; }

 private:
  char* base_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t committed_ = 0;
  HugePages huge_;
  std::uint64_t huge_refused_ = 0;
};

}  // namespace pfb::memory
