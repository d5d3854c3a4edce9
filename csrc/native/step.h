// What a plan does: a list of steps, each a primitive, a loop of our own, or a call of the host.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "onednn.h"

namespace pfb {

// What a host step is given: addresses in, addresses out.  `context` belongs to the caller of run.
struct HostCall {
  void* context;
  const std::vector<void*>& inputs;
  std::vector<void*>& outputs;
};
using HostFunction = std::function<void(const HostCall&)>;

// A loop of our own.  pointers[i] is the first element of argument i.
using Kernel = std::function<void(void* const* pointers)>;
constexpr std::size_t kMaxKernelArguments = 16;

struct Step {
  // Which value is passed as which DNNL_ARG; kernels and host calls ignore the key.
  std::vector<std::pair<int, int>> arguments;
  std::string name;            // the graph's op, for reports
  std::string implementation;  // what oneDNN chose, or "kernel", or "host"
  dnnl::primitive primitive;   // exactly one of these three is set
  Kernel kernel;
  HostFunction host;
  int threads = 1;              // that it was made for and runs with
  bool scratchpad = false;      // of a primitive: it wants working memory
  std::size_t host_inputs = 0;  // of a host step: so many arguments are inputs, the rest outputs
};

// Whether oneDNN could only offer its slow reference code.
inline bool IsReference(const std::string& implementation) {
  return implementation.rfind("ref", 0) == 0;
}

}  // namespace pfb
