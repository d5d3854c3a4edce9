// The OpenMP runtime that oneDNN already uses, found in the process instead of linked.
//
// Linking an OpenMP runtime of our own would give the process two thread pools that fight for the
// cores.  Paddle's wheel carries libiomp5, which also speaks GCC's interface (GOMP_parallel), so
// our loops run on the very threads that oneDNN's do.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>

namespace pfb {

// Name of the runtime found, e.g. "libiomp5.so", or "" when there is none (loops run serially).
const char* OpenMPRuntime();

// Threads that a parallel region started by the calling thread would get.
int MaxThreads();
void SetMaxThreads(int threads);

// Sets that number for the calling thread and restores the former one on destruction.
// oneDNN reads it when a primitive is created and again when it runs.
class ThreadScope {
 public:
  explicit ThreadScope(int threads);
  ~ThreadScope();
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  int before_;
};

// Switches the calling thread's parallel regions off (each runs on that thread alone) and on again.
//
// Far cheaper than SetMaxThreads(1): that sends the threads of OpenMP's team away, and gathering
// them again for the next region takes four times as long as the region itself, or, once they have
// gone to sleep, fifty times.
class ParallelSwitch {
 public:
  ParallelSwitch();
  ~ParallelSwitch() { Set(true); }
  ParallelSwitch(const ParallelSwitch&) = delete;
  ParallelSwitch& operator=(const ParallelSwitch&) = delete;

  void Set(bool on);

 private:
  int levels_;  // of nested regions that the thread may open when on
  bool on_ = true;
};

// Calls body(begin, end) on disjoint ranges that cover [0, count), one per thread.
void ParallelFor(std::size_t count, const std::function<void(std::size_t, std::size_t)>& body);

// Where the threads of a team wait for each other: too short a wait to sleep through.
class Meeting {
 public:
  // Returns when all `threads` have come.
  void Wait(int threads);

 private:
  std::atomic<int> arrived_{0};
  std::atomic<int> round_{0};
};

// Moves the calling thread to another processor where it shares one with a thread of its team while
// others that it may use are left to themselves.  Nothing about where threads may run is changed.
void LeaveSharedProcessor(int threads);

// Calls body(thread, threads) on each thread of a team of at most `threads`; all run at once.
void ParallelTeam(int threads, const std::function<void(int, int)>& body);

}  // namespace pfb
