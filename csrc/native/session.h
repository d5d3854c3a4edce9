// The state of one call of a plan: memory objects that point into the arena it works in.
#pragma once

#include <vector>

#include "arena.h"
#include "onednn.h"
#include "parallel.h"
#include "step.h"

namespace pfb {

struct PlanData;

class Session {
 public:
  explicit Session(const PlanData& plan);

  // `arena` has room for what the plan keeps in it.
  void Run(const Arena& arena, const std::vector<void*>& inputs, const std::vector<void*>& outputs,
           void* context, std::vector<long long>* nanoseconds);

 private:
  void MoveTo(char* arena);
  void Point(int storage, void* address);
  void* Address(int value) const;
  void RunStep(std::size_t index, void* context, ParallelSwitch& parallel);

  const PlanData& plan_;
  char* arena_ = nullptr;  // where the memory objects point to
  dnnl::stream stream_;
  std::vector<char*> bases_;                 // per storage
  std::vector<dnnl::memory> memories_;       // per value; empty where no primitive needs it
  std::vector<std::vector<int>> values_of_;  // per storage: values with a memory object
  dnnl::memory scratchpad_;
  std::vector<std::vector<dnnl_exec_arg_t>> arguments_;  // per step
  std::vector<int> handle_storage_;                      // per host output
  std::vector<void*> host_inputs_;
  std::vector<void*> host_outputs_;
};

}  // namespace pfb
