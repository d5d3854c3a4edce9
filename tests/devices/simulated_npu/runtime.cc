// A custom device for Paddle, named "npu", whose chip is this process: what Paddle's plug-in
// interface (paddle/phi/backends/device_ext.h) asks of an Ascend runtime, over DeviceMemory.
//
// Streams and events are tokens, everything is synchronous.  The environment variable
// SIMULATED_NPU_ABORT names an event that ends the process from its first occurrence on.
#include <cstring>

#include "memory.h"
#include "paddle/phi/backends/device_ext.h"
#include "settings.h"

namespace simulated_npu {

namespace {

thread_local int current_device = 0;

C_Status Status(bool good) { return good ? C_SUCCESS : C_FAILED; }
bool Happens(const char* name, size_t size = 0) { return EventOf(name)->Happens(size); }

// -- the plug-in and its devices ------------------------------------------------------------------

C_Status Initialize() {
  if (const char* name = std::getenv("SIMULATED_NPU_ABORT")) {
    if (Event* event = EventOf(name)) event->aborts_after = 0;
  }
  return C_SUCCESS;
}
C_Status Finalize() { return C_SUCCESS; }
C_Status KeepDevice(const C_Device) { return C_SUCCESS; }
C_Status SetDevice(const C_Device device) {
  current_device = device->id;
  return C_SUCCESS;
}
C_Status GetDevice(const C_Device device) {
  device->id = current_device;
  return C_SUCCESS;
}
C_Status CountDevices(size_t* count) {
  *count = static_cast<size_t>(DeviceCount());
  return C_SUCCESS;
}
C_Status ListDevices(size_t* numbers) {
  for (int number = 0; number < DeviceCount(); ++number) numbers[number] = number;
  return C_SUCCESS;
}
C_Status One(const C_Device, size_t* value) {
  *value = 1;
  return C_SUCCESS;
}
C_Status Chunk(const C_Device, size_t* size) {
  *size = 512;
  return C_SUCCESS;
}

// -- streams and events ---------------------------------------------------------------------------

C_Status MakeStream(const C_Device, C_Stream* stream) {
  *stream = reinterpret_cast<C_Stream>(new char);
  return C_SUCCESS;
}
C_Status DropStream(const C_Device, C_Stream stream) {
  delete reinterpret_cast<char*>(stream);
  return C_SUCCESS;
}
C_Status MakeEvent(const C_Device, C_Event* event) {
  *event = reinterpret_cast<C_Event>(new char);
  return C_SUCCESS;
}
C_Status DropEvent(const C_Device, C_Event event) {
  delete reinterpret_cast<char*>(event);
  return C_SUCCESS;
}
C_Status CallBack(const C_Device device, C_Stream stream, C_Callback function, void* data) {
  C_Status status = C_SUCCESS;
  function(device, stream, data, &status);
  return status;
}
C_Status SynchronizeDevice(const C_Device) { return Status(Happens("synchronize")); }
C_Status SynchronizeStream(const C_Device, C_Stream) { return Status(Happens("synchronize")); }
C_Status OnEvent(const C_Device, C_Event) { return C_SUCCESS; }
C_Status OnStreamEvent(const C_Device, C_Stream, C_Event) { return C_SUCCESS; }
C_Status QueryStream(const C_Device, C_Stream) { return C_SUCCESS; }

// -- memory ---------------------------------------------------------------------------------------

C_Status ToDevice(const C_Device, void* to, const void* from, size_t size) {
  if (!Happens("h2d", size)) return C_FAILED;
  std::memcpy(TranslateOrAbort(to, size), from, size);
  return C_SUCCESS;
}
C_Status ToHost(const C_Device, void* to, const void* from, size_t size) {
  if (!Happens("d2h", size)) return C_FAILED;
  std::memcpy(to, TranslateOrAbort(from, size), size);
  return C_SUCCESS;
}
C_Status Within(const C_Device, void* to, const void* from, size_t size) {
  if (!Happens("d2d", size)) return C_FAILED;
  std::memmove(TranslateOrAbort(to, size), TranslateOrAbort(from, size), size);
  return C_SUCCESS;
}
C_Status Between(const C_Device to_device, const C_Device, void* to, const void* from,
                 size_t size) {
  return Within(to_device, to, from, size);
}
C_Status ToDeviceOn(const C_Device d, C_Stream, void* to, const void* from, size_t size) {
  return ToDevice(d, to, from, size);
}
C_Status ToHostOn(const C_Device d, C_Stream, void* to, const void* from, size_t size) {
  return ToHost(d, to, from, size);
}
C_Status WithinOn(const C_Device d, C_Stream, void* to, const void* from, size_t size) {
  return Within(d, to, from, size);
}
C_Status BetweenOn(const C_Device to_device, const C_Device, C_Stream, void* to, const void* from,
                   size_t size) {
  return Within(to_device, to, from, size);
}
C_Status Allocate(const C_Device device, void** address, size_t size) {
  *address = nullptr;
  if (!Happens("allocate", size)) return C_FAILED;
  *address = MemoryOf(device->id).Allocate(size);
  return Status(*address != nullptr);
}
C_Status Free(const C_Device device, void* address, size_t size) {
  return Status(Happens("free", size) && MemoryOf(device->id).Free(address));
}
C_Status AllocateOnHost(const C_Device, void** address, size_t size) {
  *address = std::malloc(size);
  return Status(*address != nullptr);
}
C_Status FreeOnHost(const C_Device, void* address, size_t) {
  std::free(address);
  return C_SUCCESS;
}
C_Status MemoryStatistics(const C_Device device, size_t* total, size_t* left) {
  DeviceMemory& memory = MemoryOf(device->id);
  *total = memory.capacity();
  *left = memory.capacity() - memory.live();
  return C_SUCCESS;
}

}  // namespace

}  // namespace simulated_npu

extern "C" void InitPlugin(CustomRuntimeParams* parameters) {
  using namespace simulated_npu;
  PADDLE_CUSTOM_RUNTIME_CHECK_VERSION(parameters);
  static char type[] = "npu";
  static char sub_type[] = "simulated";
  parameters->device_type = type;
  parameters->sub_device_type = sub_type;
  C_DeviceInterface* ask = parameters->interface;
  std::memset(static_cast<void*>(ask), 0, sizeof(C_DeviceInterface));
  ask->size = sizeof(C_DeviceInterface);
  ask->initialize = Initialize;
  ask->finalize = Finalize;
  ask->init_device = KeepDevice;
  ask->deinit_device = KeepDevice;
  ask->set_device = SetDevice;
  ask->get_device = GetDevice;
  ask->get_device_count = CountDevices;
  ask->get_device_list = ListDevices;
  ask->get_compute_capability = One;
  ask->get_runtime_version = One;
  ask->get_driver_version = One;
  ask->get_multi_process = One;
  ask->get_max_threads_per_mp = One;
  ask->get_max_threads_per_block = One;
  ask->create_stream = MakeStream;
  ask->destroy_stream = DropStream;
  ask->query_stream = QueryStream;
  ask->stream_add_callback = CallBack;
  ask->create_event = MakeEvent;
  ask->destroy_event = DropEvent;
  ask->query_event = OnEvent;
  ask->record_event = OnStreamEvent;
  ask->stream_wait_event = OnStreamEvent;
  ask->synchronize_event = OnEvent;
  ask->synchronize_device = SynchronizeDevice;
  ask->synchronize_stream = SynchronizeStream;
  ask->memory_copy_h2d = ToDevice;
  ask->memory_copy_d2h = ToHost;
  ask->memory_copy_d2d = Within;
  ask->memory_copy_p2p = Between;
  ask->async_memory_copy_h2d = ToDeviceOn;
  ask->async_memory_copy_d2h = ToHostOn;
  ask->async_memory_copy_d2d = WithinOn;
  ask->async_memory_copy_p2p = BetweenOn;
  ask->device_memory_allocate = Allocate;
  ask->device_memory_deallocate = Free;
  ask->host_memory_allocate = AllocateOnHost;
  ask->host_memory_deallocate = FreeOnHost;
  ask->unified_memory_allocate = AllocateOnHost;
  ask->unified_memory_deallocate = FreeOnHost;
  ask->device_memory_stats = MemoryStatistics;
  ask->device_min_chunk_size = Chunk;
}
