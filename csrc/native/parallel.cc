#include "parallel.h"

#include <dlfcn.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <exception>
#include <mutex>

namespace pfb {
namespace {

struct Runtime {
  const char* name = "";
  void (*set_num_threads)(int) = nullptr;
  int (*get_max_threads)() = nullptr;
  int (*get_num_threads)() = nullptr;
  int (*get_thread_num)() = nullptr;
  void (*set_max_active_levels)(int) = nullptr;
  int (*get_max_active_levels)() = nullptr;
  void (*parallel)(void (*)(void*), void*, unsigned, unsigned) = nullptr;

  bool complete() const {
    return set_num_threads && get_max_threads && get_num_threads && get_thread_num &&
           set_max_active_levels && get_max_active_levels && parallel;
  }
};

template <typename Function>
void Resolve(void* library, const char* symbol, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, symbol));
}

// libiomp5 first: where both are loaded, Paddle's libraries are bound to it.
Runtime FindRuntime() {
  constexpr std::array<const char*, 3> kNames = {"libiomp5.so", "libomp.so.5", "libgomp.so.1"};
  for (const char* name : kNames) {
    void* library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) continue;
    Runtime runtime;
    runtime.name = name;
    Resolve(library, "omp_set_num_threads", runtime.set_num_threads);
    Resolve(library, "omp_get_max_threads", runtime.get_max_threads);
    Resolve(library, "omp_get_num_threads", runtime.get_num_threads);
    Resolve(library, "omp_get_thread_num", runtime.get_thread_num);
    Resolve(library, "omp_set_max_active_levels", runtime.set_max_active_levels);
    Resolve(library, "omp_get_max_active_levels", runtime.get_max_active_levels);
    Resolve(library, "GOMP_parallel", runtime.parallel);
    if (runtime.complete()) return runtime;
  }
  return Runtime{};
}

const Runtime& TheRuntime() {
  static const Runtime runtime = FindRuntime();
  return runtime;
}

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

struct Region {
  const std::function<void(int, int)>* body;
  std::mutex mutex;
  std::exception_ptr failure;
};

void RunShare(void* data) {
  Region& region = *static_cast<Region*>(data);
  // An exception must not leave the region: OpenMP would end the process.
  try {
    (*region.body)(TheRuntime().get_thread_num(), TheRuntime().get_num_threads());
  } catch (...) {
    const std::lock_guard<std::mutex> lock(region.mutex);
    region.failure = std::current_exception();
  }
}

}  // namespace

const char* OpenMPRuntime() { return TheRuntime().name; }

int MaxThreads() { return TheRuntime().complete() ? TheRuntime().get_max_threads() : 1; }

void SetMaxThreads(int threads) {
  if (TheRuntime().complete() && threads > 0) TheRuntime().set_num_threads(threads);
}

ThreadScope::ThreadScope(int threads) : before_(MaxThreads()) { SetMaxThreads(threads); }

ThreadScope::~ThreadScope() { SetMaxThreads(before_); }

ParallelSwitch::ParallelSwitch()
    : levels_(TheRuntime().complete() ? TheRuntime().get_max_active_levels() : 0) {}

void ParallelSwitch::Set(bool on) {
  if (on == on_ || !TheRuntime().complete()) return;
  on_ = on;
  TheRuntime().set_max_active_levels(on ? levels_ : 0);
}

void Meeting::Wait(int threads) {
  if (threads < 2) return;
  const int round = round_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads) {
    arrived_.store(0, std::memory_order_relaxed);
    round_.store(round + 1, std::memory_order_release);
    return;
  }
  for (int spins = 0; round_.load(std::memory_order_acquire) == round; ++spins) {
    constexpr int kPatience = 1000;  // then the others seem to wait for this very processor
    if (spins < kPatience) {
      Pause();
    } else {
      sched_yield();
    }
  }
}

void LeaveSharedProcessor(int threads) {
  constexpr int kMostThreads = 64;
  if (threads < 2 || threads > kMostThreads) return;
  std::array<int, kMostThreads> processors{};
  ParallelTeam(threads, [&](int thread, int) {
    processors[static_cast<std::size_t>(thread)] = sched_getcpu();
  });
  const auto* others = processors.data() + 1;
  const auto* end = processors.data() + threads;
  if (std::find(others, end, processors[0]) == end) return;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  cpu_set_t free = allowed;
  for (const int* processor = processors.data(); processor != end; ++processor) {
    if (*processor >= 0) CPU_CLR(static_cast<std::size_t>(*processor), &free);
  }
  if (CPU_COUNT(&free) == 0 || sched_setaffinity(0, sizeof(free), &free) != 0) return;
  sched_setaffinity(0, sizeof(allowed), &allowed);
}

void ParallelTeam(int threads, const std::function<void(int, int)>& body) {
  if (threads <= 1) return body(0, 1);
  Region region{&body, {}, {}};
  TheRuntime().parallel(RunShare, &region, static_cast<unsigned>(threads), 0);
  if (region.failure) std::rethrow_exception(region.failure);
}

void ParallelFor(std::size_t count, const std::function<void(std::size_t, std::size_t)>& body) {
  const int wanted = static_cast<int>(std::min<std::size_t>(count, MaxThreads()));
  ParallelTeam(wanted, [&](int thread, int threads) {
    const std::size_t begin = count * static_cast<std::size_t>(thread) / threads;
    const std::size_t end = count * static_cast<std::size_t>(thread + 1) / threads;
    if (begin < end) body(begin, end);
  });
}

}  // namespace pfb
