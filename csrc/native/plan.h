// A built plan: immutable steps, and the sessions that concurrent calls run in.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "onednn.h"
#include "session.h"
#include "step.h"
#include "value.h"

namespace pfb {

// Everything a session reads; shared by all sessions of a plan, never changed.
struct PlanData {
  dnnl::engine engine;
  std::vector<Value> values;
  std::vector<Storage> storages;
  std::vector<Step> steps;
  std::vector<int> outputs;  // values, in the order of results
  std::size_t arena_bytes = 0;
  std::size_t scratchpad_bytes = 0;
  int threads = 1;
  double operations = 0;  // floating-point operations, or their equivalent in time
};

class Plan {
 public:
  explicit Plan(PlanData data);
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // Runs all steps.  Any number of threads may run at once: each leases a session of its own.
  // outputs[i] is ignored where OutputHandle(i) is not -1.  `nanoseconds`, when given, receives the
  // time of each step.
  void Run(const std::vector<void*>& inputs, const std::vector<void*>& outputs, void* context,
           std::vector<long long>* nanoseconds = nullptr);

  // The host output that result `i` is handed over from, or -1 when the plan writes it itself.
  int OutputHandle(std::size_t i) const;

  const PlanData& data() const { return data_; }
  // Bytes of the arena that a call works in.
  std::size_t ArenaBytes() const { return data_.arena_bytes + data_.scratchpad_bytes; }

 private:
  // Sessions kept for the next call.  Slots are swapped atomically instead of locked, so that a
  // process that forks during a call leaves no lock behind in the child.
  static constexpr std::size_t kIdleSessions = 4;

  std::unique_ptr<Session> Lease();
  void GiveBack(std::unique_ptr<Session> session);

  PlanData data_;
  std::array<std::atomic<Session*>, kIdleSessions> idle_;
};

}  // namespace pfb
