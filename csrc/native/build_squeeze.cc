// Squeeze-and-excitation as one step.
#include "builder.h"
#include "squeeze.h"

namespace pfb {
namespace {

bool IsActivation(const PostOps& ops) {
  return ops.empty() || (ops.size() == 1 && AsActivation(ops[0]));
}

Activation OnlyActivation(const PostOps& ops) {
  return ops.empty() ? Activation{} : *AsActivation(ops[0]);
}

}  // namespace

bool PlanBuilder::CanSqueeze(int source, const PostOps& inner, const PostOps& gate) const {
  const Dims dims = values_[source].desc.get_dims();
  const Desc last = ChannelsLast(dims, dnnl::memory::data_type::f32);
  return SqueezeSupported() && dims.size() == 4 && desc(source) == last && IsActivation(inner) &&
         IsActivation(gate);
}

int PlanBuilder::Squeeze(int source, int inner, int inner_bias, int outer, int outer_bias,
                         const PostOps& inner_ops, const PostOps& gate_ops) {
  const Dims dims = shape(source);
  SqueezeShape made{};
  made.batch = static_cast<std::size_t>(dims[0]);
  made.channels = static_cast<std::size_t>(dims[1]);
  made.pixels = static_cast<std::size_t>(dims[2] * dims[3]);
  made.squeezed = static_cast<std::size_t>(shape(inner)[0]);
  made.inner = OnlyActivation(inner_ops);
  made.gate = OnlyActivation(gate_ops);
  const WorkScope work(*this, ElementwiseWork(dims));
  const int result = NewValue(desc(source), DType::kFloat32);
  const Dims memory = {static_cast<Dims::value_type>(made.work())};
  Arguments arguments = {{0, source},
                         {0, RowMajorOf(inner)},
                         {0, RowMajorOf(outer)},
                         {0, result},
                         {0, NewValue(RowMajor(memory, DType::kFloat32), DType::kFloat32)}};
  const auto add = [&](int bias) {
    if (bias < 0) return -1;
    arguments.emplace_back(0, PlainVector(bias));
    return static_cast<int>(arguments.size()) - 1;
  };
  const int inner_at = add(inner_bias);
  const int outer_at = add(outer_bias);
  AddKernel(std::move(arguments), [=](void* const* pointers) {
    const auto at = [&](int index) {
      return index < 0 ? nullptr : static_cast<float*>(pointers[index]);
    };
    RunSqueeze(made, {at(0), at(1), at(inner_at), at(2), at(outer_at), at(3), at(4)});
  });
  return result;
}

}  // namespace pfb
