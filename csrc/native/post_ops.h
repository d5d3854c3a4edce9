// What is applied to a primitive's result before it is stored.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "onednn.h"

namespace pfb {

// kind "sum": adds value `value`, whose memory the result takes over.
// kind "add", "sub", "mul", "div", "max", "min": a binary op with `value` as the second operand.
// any other kind: an elementwise function, see EltwiseAlgorithm.
struct PostOp {
  std::string kind;
  float alpha = 0.0F;
  float beta = 0.0F;
  int value = -1;
};
using PostOps = std::vector<PostOp>;

// oneDNN's algorithm for an elementwise function; throws std::invalid_argument for other names.
dnnl::algorithm EltwiseAlgorithm(const std::string& name);

// oneDNN's algorithm for a binary op, or undef when there is none to use.  Maximum and minimum are
// left out: oneDNN's lose NaNs.
dnnl::algorithm BinaryAlgorithm(const std::string& name);

// The leading part of `post_ops` that primitives may apply, and what is left.
std::pair<PostOps, PostOps> SplitFusable(const PostOps& post_ops);

}  // namespace pfb
