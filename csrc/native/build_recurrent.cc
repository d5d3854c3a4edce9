// Recurrent layers, by oneDNN's own primitives.
#include <optional>
#include <stdexcept>
#include <string>

#include "builder.h"
#include "recurrent.h"

namespace pfb {
namespace {

using dnnl::algorithm;
using dnnl::prop_kind;
using dnnl::rnn_direction;

// The descriptors of one layer; those of states that are not there are empty.
struct Layer {
  rnn_direction direction;
  Desc source, hidden, cell, weights, recurrence, bias, result, final_hidden, final_cell;
};

// What a plan needs to know of a primitive, whichever cell it computes.
struct Described {
  dnnl::primitive_desc_base pd;
  Desc weights, recurrence;
};

template <typename PrimitiveDesc>
Described Describe(PrimitiveDesc pd) {
  return {pd, pd.weights_layer_desc(), pd.weights_iter_desc()};
}

Described DescribeCell(const std::string& mode, const dnnl::engine& engine, const Layer& layer,
                       const dnnl::primitive_attr& attributes) {
  const auto inference = prop_kind::forward_inference;
  if (mode == "LSTM") {
    return Describe(dnnl::lstm_forward::primitive_desc(
        engine, inference, layer.direction, layer.source, layer.hidden, layer.cell, layer.weights,
        layer.recurrence, layer.bias, layer.result, layer.final_hidden, layer.final_cell,
        attributes));
  }
  // Paddle applies the reset gate after the product: that is the GRU with linear before reset.
  if (mode == "GRU") {
    return Describe(dnnl::lbr_gru_forward::primitive_desc(
        engine, inference, layer.direction, layer.source, layer.hidden, layer.weights,
        layer.recurrence, layer.bias, layer.result, layer.final_hidden, attributes));
  }
  if (mode != "RNN_TANH" && mode != "RNN_RELU") {
    throw std::invalid_argument("no recurrent cell '" + mode + "'");
  }
  const auto activation = mode == "RNN_TANH" ? algorithm::eltwise_tanh : algorithm::eltwise_relu;
  return Describe(dnnl::vanilla_rnn_forward::primitive_desc(
      engine, inference, activation, layer.direction, layer.source, layer.hidden, layer.weights,
      layer.recurrence, layer.bias, layer.result, layer.final_hidden, attributes));
}

// A leading one: oneDNN counts layers first.
Dims OneLayer(Dims shape) {
  shape.insert(shape.begin(), 1);
  return shape;
}

}  // namespace

int PlanBuilder::UnitBlock() { return RecurrentSupported() ? RecurrentShape::Block() : 0; }

std::vector<int> PlanBuilder::Recurrence(const RecurrenceSpec& spec) {
  RecurrentShape layer{};
  const Dims gates = shape(spec.gates);
  layer.cell = spec.mode == "LSTM" ? Cell::kLstm : Cell::kGru;
  layer.steps = static_cast<int>(gates[0]);
  layer.batch = static_cast<int>(gates[1]);
  layer.directions = spec.directions;
  layer.hidden = spec.hidden_size;
  if (layer.directions * layer.gates() * layer.padded() != gates[2] ||
      ElementCount(shape(spec.recurrence)) != static_cast<long long>(layer.packed_size())) {
    throw std::invalid_argument("a recurrence whose matrices do not fit each other");
  }
  const Dims out = {gates[0], gates[1], layer.directions * layer.hidden};
  const Dims state = {layer.directions, layer.batch, layer.hidden};
  const WorkScope work(*this, 2.0 * layer.steps * layer.batch * layer.packed_size(),
                       layer.UsefulThreads() > 1);
  Arguments arguments;
  const auto add = [&](int value) {
    if (value < 0) return -1;
    arguments.emplace_back(0, value);
    return static_cast<int>(arguments.size()) - 1;
  };
  const auto plain = [&](int value) { return value < 0 ? -1 : RowMajorOf(value); };
  const auto fresh = [&](const Dims& dims) {
    return NewValue(RowMajor(dims, DType::kFloat32), DType::kFloat32);
  };
  const bool lstm = layer.cell == Cell::kLstm;
  std::vector<int> results = {fresh(out)};
  if (spec.final_states) {
    results.push_back(fresh(state));
    if (lstm) results.push_back(fresh(state));
  }
  const int gates_at = add(plain(spec.gates));
  const int recurrence_at = add(plain(spec.recurrence));
  const int bias_at = add(plain(spec.bias));
  const int hidden_at = add(plain(spec.hidden));
  const int cell_at = add(plain(spec.cell));
  const int result_at = add(results[0]);
  const int final_hidden_at = spec.final_states ? add(results[1]) : -1;
  const int final_cell_at = spec.final_states && lstm ? add(results[2]) : -1;
  const int lengths_at = spec.lengths < 0 ? -1 : add(RowMajorOf(Cast(spec.lengths, DType::kInt64)));
  const int work_at = lstm ? add(fresh({layer.directions, layer.batch, layer.padded()})) : -1;
  AddKernel(std::move(arguments), [=](void* const* pointers) {
    const auto at = [&](int index) {
      return index < 0 ? nullptr : static_cast<float*>(pointers[index]);
    };
    RunRecurrent(layer,
                 {at(gates_at), at(recurrence_at), at(bias_at), at(hidden_at), at(cell_at),
                  at(result_at), at(final_hidden_at), at(final_cell_at),
                  lengths_at < 0 ? nullptr : static_cast<const std::int64_t*>(pointers[lengths_at]),
                  at(work_at)});
  });
  return results;
}

std::vector<int> PlanBuilder::Recurrent(const RecurrentSpec& spec) {
  const auto f32 = dnnl::memory::data_type::f32;
  const Dims source = shape(spec.source);
  const Dims weights = OneLayer(shape(spec.weights));
  const Dims recurrence = OneLayer(shape(spec.recurrence));
  const auto directions = weights[1], gates = weights[3], hidden = weights[4];
  const Dims state = {1, directions, source[1], hidden};
  const Dims out = {source[0], source[1], directions * hidden};
  // Threads meet at every step of the sequence, so that one step has to repay them; it does so
  // sooner than a primitive of its own, whose team may have gone to sleep.
  constexpr double kRepays = 1e5;
  const double per_step = 2.0 * static_cast<double>(source[1] * gates * hidden) *
                          static_cast<double>(source[2] + hidden);
  const WorkScope work(*this, per_step * static_cast<double>(source[0]), per_step > kRepays);
  Layer layer;
  layer.direction = directions == 2 ? rnn_direction::bidirectional_concat
                                    : rnn_direction::unidirectional_left2right;
  layer.source = RowMajor(source, f32);
  layer.weights = AnyLayout(weights);
  layer.recurrence = AnyLayout(recurrence);
  layer.bias = RowMajor(OneLayer(shape(spec.bias)), f32);
  layer.result = RowMajor(out, f32);
  const bool has_cell = spec.mode == "LSTM";
  if (spec.hidden >= 0) layer.hidden = RowMajor(state, f32);
  if (spec.cell >= 0) layer.cell = RowMajor(state, f32);
  if (spec.final_states) {
    layer.final_hidden = RowMajor(state, f32);
    if (has_cell) layer.final_cell = layer.final_hidden;
  }
  const Described made = DescribeCell(spec.mode, engine_, layer, PlainAttributes());
  const auto plain = [&](int value, const Desc& layout) {
    return Reshape(RowMajorOf(value), layout.get_dims());
  };
  Arguments arguments = {
      {DNNL_ARG_SRC_LAYER, RowMajorOf(spec.source)},
      {DNNL_ARG_WEIGHTS_LAYER, InLayout(Reshape(spec.weights, weights), made.weights)},
      {DNNL_ARG_WEIGHTS_ITER, InLayout(Reshape(spec.recurrence, recurrence), made.recurrence)},
      {DNNL_ARG_BIAS, plain(spec.bias, layer.bias)}};
  if (spec.hidden >= 0) arguments.emplace_back(DNNL_ARG_SRC_ITER, plain(spec.hidden, layer.hidden));
  if (spec.cell >= 0) arguments.emplace_back(DNNL_ARG_SRC_ITER_C, plain(spec.cell, layer.cell));
  std::vector<int> results = {NewValue(layer.result, DType::kFloat32)};
  arguments.emplace_back(DNNL_ARG_DST_LAYER, results.front());
  const auto add_state = [&](int role) {
    results.push_back(NewValue(layer.final_hidden, DType::kFloat32));
    arguments.emplace_back(role, results.back());
  };
  if (spec.final_states) {
    add_state(DNNL_ARG_DST_ITER);
    if (has_cell) add_state(DNNL_ARG_DST_ITER_C);
  }
  AddPrimitive(made.pd, std::move(arguments));
  return results;
}

}  // namespace pfb
