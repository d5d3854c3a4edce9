#include "page_heap.h"

#include <algorithm>

namespace pfb::memory {
namespace {

constexpr std::size_t kLeast = std::size_t{16} << 20;

}  // namespace

PageHeap::PageHeap(std::size_t address_space, HugePages huge, Budget& budget)
    : budget_(budget),
      region_(std::min(address_space, kPageBytes * UINT32_MAX / 2), kLeast, huge),
      table_(TableBytes(region_.bytes()), TableBytes(region_.bytes()), HugePages::kNone),
      bits_(BitBytes(region_.bytes()), BitBytes(region_.bytes()), HugePages::kNone) {}

std::size_t PageHeap::TableBytes(std::size_t bytes) { return bytes / kPageBytes * sizeof(Page); }

// A word more than needed: bits are read word by word.
std::size_t PageHeap::BitBytes(std::size_t bytes) { return bytes / kPageBytes / 8 + 8; }

PageHeap::Bin PageHeap::BinOf(std::size_t pages) {
  if (pages < kSteps) return {0, static_cast<int>(pages)};
  const int log = 63 - __builtin_clzll(pages);
  return {log - 3, static_cast<int>((pages >> (log - 4)) & (kSteps - 1))};
}

void PageHeap::Insert(std::size_t page, std::size_t count) {
  const auto [doubling, step] = BinOf(count);
  std::uint32_t& first = heads_[doubling][step];
  Page& head = pages()[page];
  Page& tail = pages()[page + count - 1];
  tail.state = State::kFreeTail;
  tail.pages = static_cast<std::uint32_t>(count);
  head = {static_cast<std::uint32_t>(count), State::kFree, first, 0, 0};
  if (first != 0) pages()[first - 1].previous = static_cast<std::uint32_t>(page + 1);
  first = static_cast<std::uint32_t>(page + 1);
  steps_[doubling] |= 1u << step;
  doublings_ |= 1u << doubling;
}

void PageHeap::Remove(std::size_t page) {
  const Page head = pages()[page];
  const auto [doubling, step] = BinOf(head.pages);
  if (head.next != 0) pages()[head.next - 1].previous = head.previous;
  if (head.previous != 0) {
    pages()[head.previous - 1].next = head.next;
  } else {
    heads_[doubling][step] = head.next;
    if (head.next == 0) {
      steps_[doubling] &= ~(1u << step);
      if (steps_[doubling] == 0) doublings_ &= ~(1u << doubling);
    }
  }
  pages()[page + head.pages - 1].state = State::kInside;
  pages()[page].state = State::kInside;
}

std::size_t PageHeap::Search(std::size_t count) const {
  const auto [doubling, step] = BinOf(count);
  // The list of the size itself holds shorter runs as well: the best of the first few.
  std::size_t best = 0;
  std::size_t looks = kLooks;
  for (std::size_t at = heads_[doubling][step]; at != 0 && looks-- > 0; at = pages()[at - 1].next) {
    const std::size_t length = pages()[at - 1].pages;
    if (length >= count && (best == 0 || length < pages()[best - 1].pages)) best = at;
  }
  if (best != 0) return best;
  // In the lists above every run is long enough.
  std::uint32_t steps = step + 1 < kSteps ? steps_[doubling] & (~0u << (step + 1)) : 0;
  int found = doubling;
  if (steps == 0) {
    const std::uint32_t above = doublings_ & (~0u << (doubling + 1));
    if (above == 0) return 0;
    found = __builtin_ctz(above);
    steps = steps_[found];
  }
  return heads_[found][__builtin_ctz(steps)];
}

bool PageHeap::Grow(std::size_t count) {
  std::size_t start = end_;
  // A free run at the end needs only what it lacks.
  if (end_ > 0 && pages()[end_ - 1].state == State::kFreeTail)
    start -= pages()[end_ - 1].pages;
  else if (end_ > 0 && pages()[end_ - 1].state == State::kFree)
    start -= 1;
  const std::size_t end = start + count;
  if (!region_.CommitUpTo(end * kPageBytes)) return false;
  if (!table_.CommitUpTo(end * sizeof(Page)) || !bits_.CommitUpTo(end / 8 + 8)) return false;
  if (start < end_) Remove(start);
  end_ = end;
  Insert(start, count);
  return true;
}

std::size_t PageHeap::CountResident(std::size_t page, std::size_t count) const {
  std::size_t found = 0;
  for (const std::size_t end = page + count; page < end;) {
    const std::size_t bit = page % 64;
    const std::size_t width = std::min<std::size_t>(64 - bit, end - page);
    const std::uint64_t mask = (width == 64 ? ~0ull : (1ull << width) - 1) << bit;
    found += __builtin_popcountll(residency()[page / 64] & mask);
    page += width;
  }
  return found;
}

void PageHeap::SetResident(std::size_t page, std::size_t count, bool resident) {
  for (const std::size_t end = page + count; page < end;) {
    const std::size_t bit = page % 64;
    const std::size_t width = std::min<std::size_t>(64 - bit, end - page);
    const std::uint64_t mask = (width == 64 ? ~0ull : (1ull << width) - 1) << bit;
    std::uint64_t& word = residency()[page / 64];
    word = resident ? word | mask : word & ~mask;
    page += width;
  }
}

PageHeap::Taken PageHeap::Take(std::size_t bytes, std::size_t requested) {
  const std::size_t count = RoundUp(bytes, kPageBytes) / kPageBytes;
  if (count > region_.bytes() / kPageBytes) return {};
  std::size_t at = Search(count);
  if (at == 0) {
    if (!Grow(count)) return {};
    at = Search(count);
  }
  const std::size_t page = at - 1;
  const std::size_t fresh = count - CountResident(page, count);
  if (fresh > 0 && !budget_.Take(fresh * kPageBytes)) return {};
  const std::size_t length = pages()[page].pages;
  Remove(page);
  if (length > count) Insert(page + count, length - count);
  pages()[page] = {static_cast<std::uint32_t>(count), State::kAlive, 0, 0, requested};
  if (fresh > 0) SetResident(page, count, true);
  resident_ += fresh;
  used_ += count;
  return {Address(page), count * kPageBytes, fresh > 0};
}

PageHeap::Block PageHeap::Find(const void* address) const {
  const std::size_t offset = static_cast<const char*>(address) - region_.base();
  std::size_t page = offset / kPageBytes;
  if (page >= end_) return {};
  for (int back = 0; back < 2; ++back) {
    const Page& head = pages()[page];
    if (head.state == State::kAlive || head.state == State::kDead || head.state == State::kFree) {
      const Found found = head.state == State::kAlive ? Found::kAlive : Found::kDead;
      return {found, Address(page), std::size_t{head.pages} * kPageBytes,
              static_cast<std::size_t>(head.requested)};
    }
    if (page == 0) break;
    --page;
  }
  // Not the start of any run: a fault, so that time does not matter.
  const std::size_t sought = offset / kPageBytes;
  for (page = 0; page + pages()[page].pages <= sought;) page += pages()[page].pages;
  return {pages()[page].state == State::kFree ? Found::kDead : Found::kForeign, nullptr, 0, 0};
}

void PageHeap::MarkDead(const Block& block) {
  pages()[(block.start - region_.base()) / kPageBytes].state = State::kDead;
}

void PageHeap::GiveBack(const Block& block) {
  std::size_t page = (block.start - region_.base()) / kPageBytes;
  std::size_t count = block.bytes / kPageBytes;
  used_ -= count;
  pages()[page].state = State::kInside;
  const std::size_t after = page + count;
  if (after < end_ && pages()[after].state == State::kFree) {
    count += pages()[after].pages;
    Remove(after);
  }
  if (page > 0) {
    const Page& before = pages()[page - 1];
    const bool single = before.state == State::kFree;  // a run of one page has no tail
    if (single || before.state == State::kFreeTail) {
      const std::size_t length = before.pages;
      page -= length;
      count += length;
      Remove(page);
    }
  }
  Insert(page, count);
}

std::size_t PageHeap::Trim(std::size_t keep) {
  std::size_t released = 0;
  // The longest runs first: fewest calls, and short runs are the likeliest to be used again.
  for (int doubling = kDoublings - 1; doubling >= 0; --doubling) {
    for (int step = kSteps - 1; step >= 0; --step) {
      for (std::size_t at = heads_[doubling][step]; at != 0; at = pages()[at - 1].next) {
        if (resident_ - used_ <= keep / kPageBytes) return released;
        const std::size_t page = at - 1;
        const std::size_t count = pages()[page].pages;
        if (CountResident(page, count) == 0) continue;
        const std::size_t got = region_.Release(page * kPageBytes, count * kPageBytes);
        if (got == 0) continue;
        // With explicit huge pages only whole ones go.
        const bool whole = got == count * kPageBytes;
        const std::size_t first =
            whole ? page : RoundUp(page * kPageBytes, kHugePageBytes) / kPageBytes;
        const std::size_t gone = CountResident(first, got / kPageBytes);
        SetResident(first, got / kPageBytes, false);
        resident_ -= gone;
        budget_.Give(gone * kPageBytes);
        released += gone * kPageBytes;
      }
    }
  }
  return released;
}

std::size_t PageHeap::largest_free() const {
  std::size_t largest = 0;
  if (doublings_ == 0) return 0;
  const int doubling = 31 - __builtin_clz(doublings_);
  const int step = 31 - __builtin_clz(steps_[doubling]);
  for (std::size_t at = heads_[doubling][step]; at != 0; at = pages()[at - 1].next) {
    largest = std::max<std::size_t>(largest, pages()[at - 1].pages);
  }
  return largest * kPageBytes;
}

}  // namespace pfb::memory
