#include "settings.h"

#include <cstdio>
#include <cstring>

#include "memory.h"

namespace simulated_npu {

namespace {

struct Named {
  const char* name;
  Event event;
};
Named events[] = {{"h2d", {}},  {"d2h", {}},         {"d2d", {}},    {"allocate", {}},
                  {"free", {}}, {"synchronize", {}}, {"kernel", {}}, {"compile", {}}};

// True when a counter of events that may still pass has run out.
bool RunOut(std::atomic<long>& left) {
  long now = left.load();
  while (now > 0 && !left.compare_exchange_weak(now, now - 1)) {
  }
  return now == 0;
}

}  // namespace

bool Event::Happens(size_t size) {
  if (RunOut(aborts_after)) {
    std::fprintf(stderr, "simulated_npu: the driver gives up\n");
    std::abort();
  }
  if (RunOut(fails_after)) return false;
  ++count;
  bytes += static_cast<long>(size);
  return true;
}

Event* EventOf(const char* name) {
  for (Named& named : events) {
    if (std::strcmp(named.name, name) == 0) return &named.event;
  }
  return nullptr;
}

}  // namespace simulated_npu

// For the tests, through ctypes.
extern "C" long simulated_npu_count(const char* name) {
  auto* event = simulated_npu::EventOf(name);
  return event ? event->count.load() : -1;
}
extern "C" long simulated_npu_bytes(const char* name) {
  auto* event = simulated_npu::EventOf(name);
  return event ? event->bytes.load() : -1;
}
extern "C" int simulated_npu_fail(const char* name, long after) {
  auto* event = simulated_npu::EventOf(name);
  if (event) event->fails_after = after;
  return event ? 0 : -1;
}
extern "C" int simulated_npu_abort(const char* name, long after) {
  auto* event = simulated_npu::EventOf(name);
  if (event) event->aborts_after = after;
  return event ? 0 : -1;
}
extern "C" long simulated_npu_live(int device) {
  return static_cast<long>(simulated_npu::MemoryOf(device).live());
}
extern "C" long simulated_npu_peak(int device) {
  return static_cast<long>(simulated_npu::MemoryOf(device).peak());
}
