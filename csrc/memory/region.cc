#include "region.h"

#include <sys/mman.h>

#include <algorithm>

namespace pfb::memory {
namespace {

constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS;
constexpr int kReadWrite = PROT_READ | PROT_WRITE;

}  // namespace

Region::Region(std::size_t bytes, std::size_t least, HugePages huge) : huge_(huge) {
  for (bytes = RoundUp(bytes, kHugePageBytes); bytes >= least && bytes > 0;
       bytes = bytes / 2 / kHugePageBytes * kHugePageBytes) {
    // One huge page more than asked for, so that the range can start at a multiple of one.
    const std::size_t padded = bytes + kHugePageBytes;
    void* start = mmap(nullptr, padded, PROT_NONE, kPrivate | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) continue;
    char* first = static_cast<char*>(start);
    base_ =
        reinterpret_cast<char*>(RoundUp(reinterpret_cast<std::uintptr_t>(first), kHugePageBytes));
    bytes_ = bytes;
    if (base_ > first) munmap(first, base_ - first);
    char* end = first + padded;
    if (end > base_ + bytes_) munmap(base_ + bytes_, end - (base_ + bytes_));
    return;
  }
}

Region::~Region() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

bool Region::CommitUpTo(std::size_t bytes) {
  if (bytes <= committed_) return true;
  if (bytes > bytes_) return false;
  // In steps of a huge page: few system calls, and the kernel may use huge pages.
  const std::size_t end = std::min(RoundUp(bytes, kHugePageBytes), bytes_);
  char* start = base_ + committed_;
  const std::size_t length = end - committed_;
  if (huge_ == HugePages::kExplicit) {
    if (mmap(start, length, kReadWrite, kPrivate | MAP_FIXED | MAP_HUGETLB, -1, 0) != MAP_FAILED) {
      committed_ = end;
      return true;
    }
    ++huge_refused_;
    // A failed fixed mapping may have taken the reservation away: ordinary pages in its place.
    if (mmap(start, length, kReadWrite, kPrivate | MAP_FIXED | MAP_NORESERVE, -1, 0) ==
        MAP_FAILED) {
      return false;
    }
  } else if (mprotect(start, length, kReadWrite) != 0) {
    return false;
  }
  if (huge_ != HugePages::kNone) madvise(start, length, MADV_HUGEPAGE);
  committed_ = end;
  return true;
}

std::size_t Region::Release(std::size_t offset, std::size_t bytes) {
  if (huge_ == HugePages::kExplicit) {
    const std::size_t start = RoundUp(offset, kHugePageBytes);
    const std::size_t end = (offset + bytes) / kHugePageBytes * kHugePageBytes;
    if (end <= start) return 0;
    offset = start;
    bytes = end - start;
  }
  return madvise(base_ + offset, bytes, MADV_DONTNEED) == 0 ? bytes : 0;
}

}  // namespace pfb::memory
