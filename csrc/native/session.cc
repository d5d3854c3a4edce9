#include "session.h"

#include <array>
#include <chrono>
#include <stdexcept>

#include "plan.h"

namespace pfb {

Session::Session(const PlanData& plan)
    : plan_(plan),
      stream_(plan.engine),
      bases_(plan.storages.size(), nullptr),
      memories_(plan.values.size()),
      values_of_(plan.storages.size()),
      arguments_(plan.steps.size()) {
  for (std::size_t i = 0; i < plan.storages.size(); ++i) {
    const Storage& storage = plan.storages[i];
    if (storage.kind == Storage::Kind::kConstant) {
      // oneDNN and our kernels take sources without const; they only read them.
      bases_[i] = storage.packed ? static_cast<char*>(storage.packed->get_data_handle())
                                 : static_cast<char*>(const_cast<void*>(storage.data));
    } else if (storage.kind == Storage::Kind::kHandle) {
      if (handle_storage_.size() <= static_cast<std::size_t>(storage.index)) {
        handle_storage_.resize(storage.index + 1, -1);
      }
      handle_storage_[storage.index] = static_cast<int>(i);
    }
  }
  const Desc scratchpad_desc({static_cast<dnnl::memory::dim>(plan.scratchpad_bytes)},
                             dnnl::memory::data_type::u8, dnnl::memory::format_tag::a);
  scratchpad_ = dnnl::memory(scratchpad_desc, plan.engine, nullptr);
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    if (!step.primitive) continue;
    for (const auto& [role, index] : step.arguments) {
      dnnl::memory& memory = memories_[index];
      const Value& value = plan.values[index];
      if (!memory) {
        memory = dnnl::memory(value.desc, plan.engine, Address(index));
        values_of_[value.storage].push_back(index);
      }
      arguments_[i].push_back({role, memory.get()});
    }
    if (step.scratchpad) arguments_[i].push_back({DNNL_ARG_SCRATCHPAD, scratchpad_.get()});
  }
}

void Session::MoveTo(char* arena) {
  arena_ = arena;
  for (std::size_t i = 0; i < plan_.storages.size(); ++i) {
    const Storage& storage = plan_.storages[i];
    if (storage.kind == Storage::Kind::kArena && storage.last_step >= 0) {
      Point(static_cast<int>(i), arena + storage.offset);
    }
  }
  if (plan_.scratchpad_bytes > 0) scratchpad_.set_data_handle(arena + plan_.arena_bytes);
}

void Session::Point(int storage, void* address) {
  bases_[storage] = static_cast<char*>(address);
  for (const int value : values_of_[storage]) memories_[value].set_data_handle(Address(value));
}

void* Session::Address(int value) const {
  char* base = bases_[plan_.values[value].storage];
  return base == nullptr ? nullptr : base + plan_.values[value].offset;
}

void Session::RunStep(std::size_t index, void* context, ParallelSwitch& parallel) {
  const Step& step = plan_.steps[index];
  parallel.Set(step.threads > 1);
  if (step.primitive) {
    const auto& arguments = arguments_[index];
    dnnl::error::wrap_c_api(
        dnnl_primitive_execute(step.primitive.get(), stream_.get(),
                               static_cast<int>(arguments.size()), arguments.data()),
        "a primitive could not be executed");
  } else if (step.kernel) {
    std::array<void*, kMaxKernelArguments> pointers;
    for (std::size_t i = 0; i < step.arguments.size(); ++i) {
      pointers[i] = Address(step.arguments[i].second);
    }
    step.kernel(pointers.data());
  } else {
    host_inputs_.clear();
    for (std::size_t i = 0; i < step.host_inputs; ++i) {
      host_inputs_.push_back(Address(step.arguments[i].second));
    }
    host_outputs_.assign(step.arguments.size() - step.host_inputs, nullptr);
    step.host(HostCall{context, host_inputs_, host_outputs_});
    for (std::size_t i = 0; i < host_outputs_.size(); ++i) {
      Point(plan_.values[step.arguments[step.host_inputs + i].second].storage, host_outputs_[i]);
    }
  }
}

void Session::Run(const Arena& arena, const std::vector<void*>& inputs,
                  const std::vector<void*>& outputs, void* context,
                  std::vector<long long>* nanoseconds) {
  if (arena.data() != arena_) MoveTo(arena.data());
  for (std::size_t i = 0; i < plan_.storages.size(); ++i) {
    const Storage& storage = plan_.storages[i];
    if (storage.kind == Storage::Kind::kInput) {
      Point(static_cast<int>(i), inputs[storage.index]);
    } else if (storage.kind == Storage::Kind::kOutput) {
      Point(static_cast<int>(i), outputs[storage.index]);
    }
  }
  ParallelSwitch parallel;
  using Clock = std::chrono::steady_clock;
  for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
    if (nanoseconds == nullptr) {
      RunStep(i, context, parallel);
      continue;
    }
    const auto start = Clock::now();
    RunStep(i, context, parallel);
    nanoseconds->push_back(
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
  }
  stream_.wait();
}

}  // namespace pfb
