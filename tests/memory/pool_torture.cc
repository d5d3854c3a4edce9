// Threads, forks and closings against the block pool; tools/sanitize builds and runs it under the
// sanitizers.   usage: pool_torture SECONDS THREADS SEED
//
// Every block is filled with a pattern of its own and checked before it is freed, by whichever
// thread gets hold of it: a block handed out twice, or touched while free, cannot pass.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "pool.h"

namespace {

using Clock = std::chrono::steady_clock;
using Random = std::mt19937_64;

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "FAILED: %s\n", what);
  std::_Exit(1);
}

void Require(bool holds, const char* what) {
  if (!holds) Fail(what);
}

struct Held {
  unsigned char* data = nullptr;
  std::size_t bytes = 0;
  unsigned char pattern = 0;
};

std::size_t RandomSize(Random& random) {
  // Small ones, mostly; one in eight large, one in a hundred of megabytes.
  const std::uint64_t kind = random() % 100;
  if (kind < 1) return random() % (4u << 20);
  if (kind < 12) return random() % (512u << 10);
  return random() % (std::size_t{1} << (6 + random() % 10));
}

Held Take(pfb_pool* pool, Random& random) {
  Held held;
  held.bytes = RandomSize(random);
  const std::size_t alignment = std::size_t{1} << (random() % 13);
  held.data = static_cast<unsigned char*>(pfb_pool_allocate(pool, held.bytes, alignment));
  if (held.data == nullptr) return held;
  const auto address = reinterpret_cast<std::uintptr_t>(held.data);
  Require(address % alignment == 0 && address % 64 == 0, "a block is not aligned");
  Require(held.bytes == 0 || pfb_pool_size(pool, held.data) == held.bytes, "a size is wrong");
  held.pattern = static_cast<unsigned char>(random());
  std::memset(held.data, held.pattern, held.bytes);
  return held;
}

void Give(pfb_pool* pool, Held& held) {
  if (held.data == nullptr) return;
  for (std::size_t i = 0; i < held.bytes; i += i + 64 < held.bytes ? 61 : 1) {
    Require(held.data[i] == held.pattern, "a block was written by another");
  }
  Require(pfb_pool_free(pool, held.data) == PFB_OK, "a block could not be freed");
  held = {};
}

// Blocks that any thread may take and free.
struct Exchange {
  std::mutex mutex;
  std::array<Held, 64> slots;

  void Swap(Held& held, Random& random) {
    const std::lock_guard<std::mutex> lock(mutex);
    std::swap(held, slots[random() % slots.size()]);
  }
};

void Work(pfb_pool* pool, Exchange& exchange, std::uint64_t seed, Clock::time_point end) {
  Random random(seed);
  std::array<Held, 128> mine;
  while (Clock::now() < end) {
    for (int i = 0; i < 64; ++i) {
      Held& held = mine[random() % mine.size()];
      switch (random() % 8) {
        case 0:
          exchange.Swap(held, random);
          break;
        case 1:
        case 2:
        case 3:
          Give(pool, held);
          break;
        default:
          Give(pool, held);
          held = Take(pool, random);
      }
    }
  }
  for (Held& held : mine) Give(pool, held);
}

// A child of a busy process: the pool must work there, for this thread and for new ones.  The child
// allocates from nothing else, and under sanitizers starts no thread: their own allocator and table
// of threads are not made for it (gcc 12's AddressSanitizer hangs on a lock of its own).
void Fork(pfb_pool* pool, std::uint64_t seed) {
  const pid_t child = fork();
  Require(child >= 0, "no fork");
  if (child == 0) {
    alarm(60);  // a lock that nobody holds any more would keep it for ever
    Exchange exchange;
    Work(pool, exchange, seed, Clock::now() + std::chrono::milliseconds(5));
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // see Fork's comment
    std::thread([&] {
      Work(pool, exchange, seed + 1, Clock::now() + std::chrono::milliseconds(5));
    }).join();
#endif
    for (Held& held : exchange.slots) Give(pool, held);
    pfb_pool_trim(pool);
    pfb_pool_statistics statistics;
    pfb_pool_get_statistics(pool, &statistics);
    std::_Exit(statistics.faults == 0 ? 0 : 2);
  }
  int status = 0;
  Require(waitpid(child, &status, 0) == child, "no child to wait for");
  if (status != 0) std::fprintf(stderr, "wait status %d\n", status);
  Require(status == 0, "a forked child failed or hung");
}

void Disturb(pfb_pool* pool, std::uint64_t seed, Clock::time_point end, bool forks) {
  Random random(seed);
  while (Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 5));
    pfb_pool_statistics statistics;
    switch (random() % 4) {
      case 0:
        pfb_pool_trim(pool);
        break;
      case 1:
        Require(pfb_pool_check(pool) == 0, "a check found a fault");
        break;
      case 2:
        if (forks) Fork(pool, random());
        break;
      default:
        pfb_pool_get_statistics(pool, &statistics);
    }
  }
}

void Torture(const char* name, pfb_pool_options options, double seconds, int threads,
             std::uint64_t seed, bool forks) {
  const auto end = Clock::now() + std::chrono::microseconds(static_cast<long>(seconds * 1e6));
  options.address_space = std::uint64_t{1} << 30;
  pfb_pool* pool = pfb_pool_create(&options);
  Require(pool != nullptr, "no pool");
  Exchange exchange;
  std::vector<std::thread> workers;
  std::atomic<long> generations{0};
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {  // each has threads that come and go
      for (std::uint64_t round = 0; Clock::now() < end; ++round, ++generations) {
        const auto until = std::min(end, Clock::now() + std::chrono::milliseconds(50));
        std::thread([&] { Work(pool, exchange, seed + t * 1000 + round, until); }).join();
      }
    });
  }
  Disturb(pool, seed ^ 0x5eed, end, forks);
  for (auto& worker : workers) worker.join();

  pfb_pool_statistics now;
  pfb_pool_get_statistics(pool, &now);
  std::size_t left = 0;
  for (const Held& held : exchange.slots) left += held.data != nullptr;
  Require(now.live + now.system_live == left, "blocks were lost");
  Require(now.faults == 0, "faults were reported");
  if (options.limit != 0) Require(now.high_water_held <= options.limit, "the limit was exceeded");
  std::printf("%-28s %9llu allocations, %5.1f%% from thread caches, %ld threads, held %.1f MiB\n",
              name, static_cast<unsigned long long>(now.allocations),
              100.0 * now.cache_hits / (now.allocations ? now.allocations : 1), generations.load(),
              now.high_water_held / 1048576.0);

  // The owner goes first; what is left is freed by several threads, the last of which ends it.
  pfb_pool_close(pool);
  Require(left == 0 || pfb_pool_allocate(pool, 64, 64) == nullptr, "a closed pool serves");
  std::vector<std::thread> closers;
  for (int t = 0; t < 4; ++t) {
    closers.emplace_back([&, t] {
      for (std::size_t i = t; i < exchange.slots.size(); i += 4) Give(pool, exchange.slots[i]);
    });
  }
  for (auto& closer : closers) closer.join();
}

}  // namespace

int main(int count, char** arguments) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const double seconds = count > 1 ? std::atof(arguments[1]) : 10;
  const int threads = count > 2 ? std::atoi(arguments[2]) : 4;
  const std::uint64_t seed = count > 3 ? std::strtoull(arguments[3], nullptr, 10) : 1;

  pfb_pool_options plain{};
  plain.retain = UINT64_MAX;
  plain.thread_caches = 1;
  plain.abort_on_fault = 1;

  pfb_pool_options single = plain;
  single.thread_caches = 0;
  pfb_pool_options tight = plain;
  tight.limit = 24 << 20;
  pfb_pool_options spilling = tight;
  spilling.exhaustion = PFB_EXHAUSTED_SYSTEM;
  pfb_pool_options releasing = plain;
  releasing.retain = 1 << 20;
  pfb_pool_options decaying = plain;
  decaying.decay_ms = 20;
  pfb_pool_options guarded = plain;
  guarded.debug = 1;
  pfb_pool_options guarded_tight = guarded;
  guarded_tight.limit = 48 << 20;

  const double share = seconds / 9;
  Torture("thread caches", plain, share, threads, seed, false);
  Torture("thread caches, forking", plain, share, threads, seed + 1, true);
  Torture("one shared cache, forking", single, share, threads, seed + 2, true);
  Torture("limit 24 MiB", tight, share, threads, seed + 3, true);
  Torture("limit 24 MiB, then system", spilling, share, threads, seed + 4, true);
  Torture("at most 1 MiB kept free", releasing, share, threads, seed + 5, false);
  Torture("decay in 20 ms, forking", decaying, share, threads, seed + 8, true);
  Torture("debug, forking", guarded, share, threads, seed + 6, true);
  Torture("debug, limit 48 MiB", guarded_tight, share, threads, seed + 7, false);
  std::puts("passed");
  return 0;
}
