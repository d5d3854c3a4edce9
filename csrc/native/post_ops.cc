#include "post_ops.h"

#include <algorithm>
#include <stdexcept>
#include <unordered_map>

namespace pfb {

using dnnl::algorithm;

algorithm EltwiseAlgorithm(const std::string& name) {
  static const std::unordered_map<std::string, algorithm> kByName = {
      {"relu", algorithm::eltwise_relu},
      {"elu", algorithm::eltwise_elu},
      {"tanh", algorithm::eltwise_tanh},
      {"square", algorithm::eltwise_square},
      {"abs", algorithm::eltwise_abs},
      {"sqrt", algorithm::eltwise_sqrt},
      {"linear", algorithm::eltwise_linear},
      {"soft_relu", algorithm::eltwise_soft_relu},
      {"hardsigmoid", algorithm::eltwise_hardsigmoid},
      {"hardswish", algorithm::eltwise_hardswish},
      {"logistic", algorithm::eltwise_logistic},
      {"exp", algorithm::eltwise_exp},
      {"gelu_tanh", algorithm::eltwise_gelu_tanh},
      {"gelu_erf", algorithm::eltwise_gelu_erf},
      {"swish", algorithm::eltwise_swish},
      {"log", algorithm::eltwise_log},
      {"clip", algorithm::eltwise_clip},
      {"pow", algorithm::eltwise_pow},
      {"mish", algorithm::eltwise_mish},
  };
  const auto found = kByName.find(name);
  if (found == kByName.end()) throw std::invalid_argument("no elementwise function '" + name + "'");
  return found->second;
}

algorithm BinaryAlgorithm(const std::string& name) {
  static const std::unordered_map<std::string, algorithm> kByName = {
      {"add", algorithm::binary_add},
      {"sub", algorithm::binary_sub},
      {"mul", algorithm::binary_mul},
      {"div", algorithm::binary_div},
  };
  const auto found = kByName.find(name);
  return found == kByName.end() ? algorithm::undef : found->second;
}

std::pair<PostOps, PostOps> SplitFusable(const PostOps& post_ops) {
  const auto first = std::find_if(post_ops.begin(), post_ops.end(), [](const PostOp& op) {
    return op.kind != "sum" && op.value >= 0 && BinaryAlgorithm(op.kind) == dnnl::algorithm::undef;
  });
  return {PostOps(post_ops.begin(), first), PostOps(first, post_ops.end())};
}

}  // namespace pfb
