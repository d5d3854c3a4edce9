#include "workspace.h"

#include <utility>

namespace pfb {

Workspaces& Workspaces::Instance() {
  // Never destroyed: plans may outlive the static objects at the end of the process.
  static Workspaces& instance = *std::make_unique<Workspaces>().release();
  return instance;
}

std::unique_ptr<Arena> Workspaces::Lease(std::size_t bytes) {
  for (auto& slot : idle_) {
    std::unique_ptr<Arena> arena(slot.exchange(nullptr));
    if (!arena) continue;
    if (arena->bytes() >= bytes) return arena;
    break;  // too small: freed, so that there are not more arenas than calls at once
  }
  return std::make_unique<Arena>(bytes);
}

void Workspaces::GiveBack(std::unique_ptr<Arena> arena) {
  if (plans_ == 0) return;
  for (auto& slot : idle_) {
    Arena* empty = nullptr;
    if (slot.compare_exchange_strong(empty, arena.get())) {
      // The slot owns it now.
      static_cast<void>(arena.release());
      return;
    }
  }
}

void Workspaces::PlanGone(std::size_t bytes) {
  const bool last = --plans_ == 0;
  for (auto& slot : idle_) {
    std::unique_ptr<Arena> arena(slot.exchange(nullptr));
    if (arena && !last && arena->bytes() != bytes) GiveBack(std::move(arena));
  }
}

}  // namespace pfb
