// Large blocks: runs of 4 KiB pages, split when taken and coalesced when given back.
//
// Free runs hang in lists by size (two-level segregated fit: sixteen steps to each doubling), found
// through bitmaps.  What is known of a run stands outside of it, so that an overrun of a block
// cannot break the heap and free memory is never touched.  Not thread-safe: the pool locks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "budget.h"
#include "region.h"

namespace pfb::memory {

class PageHeap {
 public:
  PageHeap(std::size_t address_space, HugePages huge, Budget& budget);

  bool usable() const { return region_.base() != nullptr && table_.base() != nullptr; }
  bool Contains(const void* address) const { return region_.Contains(address); }

  struct Taken {
    char* start = nullptr;  // null: the limit, the addresses or the system's memory are used up
    std::size_t bytes = 0;
    bool grown = false;  // memory was taken from the system
  };
  // A run of at least `bytes`.
  Taken Take(std::size_t bytes, std::size_t requested);

  enum class Found { kForeign, kDead, kAlive };
  struct Block {
    Found found = Found::kForeign;
    char* start = nullptr;
    std::size_t bytes = 0;
    std::size_t requested = 0;
  };
  // The run that starts at the page of `address`, or the page before it (debug guards).
  Block Find(const void* address) const;

  // A block dies (its memory stays out of use) and is then given back to the free runs.
  void MarkDead(const Block& block);
  void GiveBack(const Block& block);

  // Gives the memory of free runs back to the system until at most `keep` bytes of it are left.
  std::size_t Trim(std::size_t keep);

  // Calls visit(start, bytes, requested) for every block alive.
  template <typename Visit>
  void ForEachAlive(Visit visit) const {
    for (std::size_t page = 0; page < end_;) {
      const Page& head = pages()[page];
      if (head.state == State::kAlive) {
        visit(Address(page), std::size_t{head.pages} * kPageBytes, head.requested);
      }
      page += head.pages;
    }
  }

  std::size_t held() const { return resident_ * kPageBytes; }
  std::size_t used() const { return used_ * kPageBytes; }
  std::size_t largest_free() const;
  std::size_t address_space() const { return region_.bytes(); }
  std::uint64_t huge_refused() const { return region_.huge_refused(); }

 private:
  enum class State : std::uint32_t { kInside, kFree, kFreeTail, kAlive, kDead };
  // Of the first page of a run; of the last page of a free run state and pages only.
  struct Page {
    std::uint32_t pages;
    State state;
    std::uint32_t next, previous;  // free runs of one list, as page + 1; 0 ends it
    std::uint64_t requested;
  };

  static constexpr int kSteps = 16;
  static constexpr int kDoublings = 28;
  static constexpr std::size_t kLooks = 16;  // entries of one list that are compared

  struct Bin {
    int doubling;
    int step;
  };
  static Bin BinOf(std::size_t pages);
  static std::size_t TableBytes(std::size_t bytes);
  static std::size_t BitBytes(std::size_t bytes);

  Page* pages() const { return reinterpret_cast<Page*>(table_.base()); }
  std::uint64_t* residency() const { return reinterpret_cast<std::uint64_t*>(bits_.base()); }
  char* Address(std::size_t page) const { return region_.base() + page * kPageBytes; }

  void Insert(std::size_t page, std::size_t count);
  void Remove(std::size_t page);
  // Page + 1 of a free run of at least `count` pages; 0 when there is none.
  std::size_t Search(std::size_t count) const;
  bool Grow(std::size_t count);
  std::size_t CountResident(std::size_t page, std::size_t count) const;
  void SetResident(std::size_t page, std::size_t count, bool resident);

  Budget& budget_;
  Region region_;
  Region table_;         // of Page
  Region bits_;          // one per page: does the system provide it?
  std::size_t end_ = 0;  // pages below are runs, above never used
  std::size_t used_ = 0;
  std::size_t resident_ = 0;
  std::uint32_t doublings_ = 0;  // bit d: some list of doubling d has a run
  std::uint32_t steps_[kDoublings] = {};
  std::uint32_t heads_[kDoublings][kSteps] = {};
};

}  // namespace pfb::memory
