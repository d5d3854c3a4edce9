// The kernels of the simulated device; every other op falls back to Paddle's CPU kernels.
//
// Eager mode needs contiguous and strided_copy, for which Paddle has no fallback.  relu and add
// show that a kernel on the device runs on the device.  The first relu of each size takes
// SIMULATED_NPU_COMPILE_MS: Ascend compiles an operator when it first meets a shape.
#include <chrono>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "memory.h"
#include "paddle/phi/capi/all.h"
#include "settings.h"

namespace simulated_npu {

namespace {

using Context = phi::capi::DeviceContext;
using Tensor = phi::capi::DenseTensor;
using Dims = std::vector<int64_t>;

int64_t Count(const Dims& dims) {
  int64_t count = 1;
  for (int64_t size : dims) count *= size;
  return count;
}

Dims DenseStrides(const Dims& dims) {
  Dims strides(dims.size());
  int64_t step = 1;
  for (size_t i = dims.size(); i-- > 0; step *= dims[i]) strides[i] = step;
  return strides;
}

// Elements from the first to the last that `strides` reach, itself included.
int64_t Reach(const Dims& dims, const Dims& strides) {
  int64_t last = 0;
  for (size_t i = 0; i < dims.size(); ++i) last += (dims[i] - 1) * strides[i];
  return last + 1;
}

template <typename T>
const T* Read(const T* address, int64_t elements) {
  return reinterpret_cast<const T*>(TranslateOrAbort(address, elements * sizeof(T)));
}
template <typename T>
T* Write(T* address, int64_t elements) {
  return reinterpret_cast<T*>(TranslateOrAbort(address, elements * sizeof(T)));
}

template <typename T>
void CopyStrided(const T* from, const Dims& from_strides, T* to, const Dims& to_strides,
                 const Dims& dims) {
  const int64_t count = Count(dims);
  for (int64_t n = 0; n < count; ++n) {
    int64_t rest = n, source = 0, target = 0;
    for (size_t i = dims.size(); i-- > 0; rest /= dims[i]) {
      source += rest % dims[i] * from_strides[i];
      target += rest % dims[i] * to_strides[i];
    }
    to[target] = from[source];
  }
}

void CompileFirst(int64_t count) {
  static std::mutex mutex;
  static std::set<int64_t> known;
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!known.insert(count).second) return;
  }
  EventOf("compile")->Happens();
  std::this_thread::sleep_for(
      std::chrono::milliseconds(FromEnvironment("SIMULATED_NPU_COMPILE_MS", 0)));
}

}  // namespace

template <typename T>
void Contiguous(const Context& context, const Tensor& x, Tensor* out) {
  const Dims dims = x.dims(), strides = DenseStrides(dims);
  out->set_strides(strides);
  out->set_offset(0);
  T* made = context.template Alloc<T>(out);
  const int64_t count = Count(dims);
  if (count == 0) return;
  CopyStrided(Read(x.data<T>(), Reach(dims, x.strides())), x.strides(), Write(made, count), strides,
              dims);
}

template <typename T>
void StridedCopy(const Context&, const Tensor& x, const Dims& dims, const Dims& strides,
                 int64_t offset, Tensor* out) {
  out->Resize(dims);
  out->set_strides(strides);
  out->set_offset(offset);
  if (Count(dims) == 0) return;
  CopyStrided(Read(x.data<T>(), Reach(dims, x.strides())), x.strides(),
              Write(out->data<T>(), Reach(dims, strides)), strides, dims);
}

template <typename T>
void Relu(const Context& context, const Tensor& x, Tensor* out) {
  const int64_t count = x.numel();
  T* made = context.template Alloc<T>(out);
  if (count == 0) return;
  CompileFirst(count);
  EventOf("kernel")->Happens();
  const T* from = Read(x.data<T>(), count);
  T* to = Write(made, count);
  for (int64_t i = 0; i < count; ++i) to[i] = from[i] > T(0) ? from[i] : T(0);
}

template <typename T>
void Add(const Context& context, const Tensor& x, const Tensor& y, Tensor* out) {
  const Dims dims = out->dims(), dense = DenseStrides(dims);
  // Strides by which an operand is read: 0 where it is repeated.
  auto repeated = [&dims](const Dims& own) {
    const Dims own_strides = DenseStrides(own);
    Dims strides(dims.size(), 0);
    for (size_t i = 0; i < own.size(); ++i) {
      if (own[i] != 1) strides[dims.size() - own.size() + i] = own_strides[i];
    }
    return strides;
  };
  T* made = context.template Alloc<T>(out);
  const int64_t count = Count(dims);
  if (count == 0) return;
  EventOf("kernel")->Happens();
  T* to = Write(made, count);
  std::vector<T> other(count);
  CopyStrided(Read(x.data<T>(), x.numel()), repeated(x.dims()), to, dense, dims);
  CopyStrided(Read(y.data<T>(), y.numel()), repeated(y.dims()), other.data(), dense, dims);
  for (int64_t i = 0; i < count; ++i) to[i] = to[i] + other[i];
}

}  // namespace simulated_npu

PD_BUILD_PHI_KERNEL(contiguous, npu, ALL_LAYOUT, simulated_npu::Contiguous, bool, uint8_t, int8_t,
                    int16_t, int32_t, int64_t, float, double, phi::dtype::float16,
                    phi::dtype::bfloat16) {}
PD_BUILD_PHI_KERNEL(strided_copy, npu, ALL_LAYOUT, simulated_npu::StridedCopy, bool, uint8_t,
                    int8_t, int16_t, int32_t, int64_t, float, double, phi::dtype::float16,
                    phi::dtype::bfloat16) {}
PD_BUILD_PHI_KERNEL(relu, npu, ALL_LAYOUT, simulated_npu::Relu, float, double) {}
PD_BUILD_PHI_KERNEL(add, npu, ALL_LAYOUT, simulated_npu::Add, float, int64_t) {}
