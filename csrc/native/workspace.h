// The arenas of the process: calls of all plans work in the same few, one after the other.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>

#include "arena.h"

namespace pfb {

// However many plans there are, as many arenas exist as calls have run at once, each as large as
// the largest plan that ran in it.  Slots are swapped atomically instead of locked, so that a
// process that forks during a call leaves no lock behind in the child.
class Workspaces {
 public:
  static Workspaces& Instance();

  // An arena of at least `bytes`, of undefined content.
  std::unique_ptr<Arena> Lease(std::size_t bytes);
  void GiveBack(std::unique_ptr<Arena> arena);

  void PlanMade() { ++plans_; }
  // Idle arenas that a plan of that size may have been the reason for are freed.
  void PlanGone(std::size_t bytes);

 private:
  static constexpr std::size_t kIdle = 8;

  std::array<std::atomic<Arena*>, kIdle> idle_{};
  std::atomic<int> plans_{0};
};

}  // namespace pfb
