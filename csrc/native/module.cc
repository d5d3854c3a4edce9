// The Python face of the native engine: addresses and small numbers in and out, no tensors.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>

#include "arena.h"
#include "attention.h"
#include "builder.h"
#include "constant_cache.h"
#include "ordinary.h"
#include "parallel.h"
#include "plan.h"
#include "tile_choices.h"
#include "windows.h"

namespace py = pybind11;

namespace pfb {
namespace {

using Addresses = std::vector<std::uintptr_t>;

std::vector<void*> Pointers(const Addresses& addresses) {
  std::vector<void*> pointers;
  pointers.reserve(addresses.size());
  for (const auto address : addresses) pointers.push_back(reinterpret_cast<void*>(address));
  return pointers;
}

// Held by shared_ptr so that copies made without the interpreter touch no reference count.
HostFunction CallPython(py::function function) {
  auto held = std::make_shared<py::function>(std::move(function));
  return [held](const HostCall& call) {
    const py::gil_scoped_acquire interpreter;
    py::list addresses;
    for (void* input : call.inputs) addresses.append(reinterpret_cast<std::uintptr_t>(input));
    const py::handle context(static_cast<PyObject*>(call.context));
    const auto made = (*held)(context, addresses).cast<Addresses>();
    if (made.size() != call.outputs.size()) {
      throw std::runtime_error("a host step returned " + std::to_string(made.size()) +
                               " addresses, needed " + std::to_string(call.outputs.size()));
    }
    for (std::size_t i = 0; i < made.size(); ++i) {
      call.outputs[i] = reinterpret_cast<void*>(made[i]);
    }
  };
}

PostOps ReadPostOps(const std::vector<std::tuple<std::string, float, float, int>>& tuples) {
  PostOps post_ops;
  for (const auto& [kind, alpha, beta, value] : tuples) {
    post_ops.push_back({kind, alpha, beta, value});
  }
  return post_ops;
}

using PostOpTuples = std::vector<std::tuple<std::string, float, float, int>>;

ConvolutionSpec Spec(std::vector<int> sources, int weights, int bias, Dims strides, Dims dilations,
                     Dims pad_begin, Dims pad_end, int groups, const PostOpTuples& post_ops,
                     int target) {
  return {std::move(sources),
          weights,
          bias,
          std::move(strides),
          std::move(dilations),
          std::move(pad_begin),
          std::move(pad_end),
          groups,
          ReadPostOps(post_ops),
          target};
}

using WindowTuple = std::tuple<std::vector<int>, std::vector<int>, std::vector<float>>;

AxisWindows ReadWindows(const WindowTuple& windows) {
  const auto& [first, source, weight] = windows;
  return {first, source, weight};
}

void BindBuilder(py::module_& module) {
  using Release = py::call_guard<py::gil_scoped_release>;
  py::class_<PlanBuilder>(module, "PlanBuilder")
      .def(py::init([](int threads, bool channels_last, const std::string& algorithm) {
             return std::make_unique<PlanBuilder>(
                 BuilderSettings{threads, channels_last, algorithm});
           }),
           py::arg("threads"), py::arg("channels_last"), py::arg("algorithm"))
      .def("input", [](PlanBuilder& self, const Dims& shape,
                       const std::string& dtype) { return self.Input(shape, ParseDType(dtype)); })
      .def("constant",
           [](PlanBuilder& self, std::uintptr_t data, const Dims& shape, const std::string& dtype,
              bool borrowed) {
             return self.Constant(reinterpret_cast<const void*>(data), shape, ParseDType(dtype),
                                  borrowed);
           })
      .def("output", &PlanBuilder::Output)
      .def("reshape", &PlanBuilder::Reshape, Release())
      .def("permute", &PlanBuilder::Permute, Release())
      .def("slice", &PlanBuilder::Slice, Release())
      .def("expand", &PlanBuilder::Expand, Release())
      .def("convolution",
           [](PlanBuilder& self, std::vector<int> sources, int weights, int bias, Dims strides,
              Dims dilations, Dims pad_begin, Dims pad_end, int groups,
              const PostOpTuples& post_ops, int target) {
             const auto spec =
                 Spec(std::move(sources), weights, bias, std::move(strides), std::move(dilations),
                      std::move(pad_begin), std::move(pad_end), groups, post_ops, target);
             const py::gil_scoped_release release;
             return self.Convolution(spec);
           })
      .def_property_readonly("channels_last", &PlanBuilder::channels_last)
      .def("shuffle", &PlanBuilder::Shuffle, Release())
      .def("room", &PlanBuilder::Room, Release())
      .def("copy_into", &PlanBuilder::CopyInto, Release())
      .def("deconvolution",
           [](PlanBuilder& self, int source, int weights, int bias, Dims strides, Dims dilations,
              Dims pad_begin, int groups, const PostOpTuples& post_ops, const Dims& out_shape) {
             const auto spec =
                 Spec({source}, weights, bias, std::move(strides), std::move(dilations),
                      std::move(pad_begin), {}, groups, post_ops, -1);
             const py::gil_scoped_release release;
             return self.Deconvolution(spec, out_shape);
           })
      .def("matmul",
           [](PlanBuilder& self, int a, int b, int bias, const PostOpTuples& post_ops) {
             const auto ops = ReadPostOps(post_ops);
             const py::gil_scoped_release release;
             return self.MatMul(a, b, bias, ops);
           })
      .def("pool", &PlanBuilder::Pool, Release())
      .def("eltwise",
           [](PlanBuilder& self, int source, const PostOpTuples& functions) {
             const auto ops = ReadPostOps(functions);
             const py::gil_scoped_release release;
             return self.Eltwise(source, ops);
           })
      .def("binary",
           [](PlanBuilder& self, const std::string& kind, int a, int b, const Dims& out_shape,
              const PostOpTuples& post_ops) {
             const auto ops = ReadPostOps(post_ops);
             const py::gil_scoped_release release;
             return self.Binary(kind, a, b, out_shape, ops);
           })
      .def("can_affine",
           [](const PlanBuilder& self, int source, const PostOpTuples& function) {
             return self.CanAffine(source, ReadPostOps(function));
           })
      .def("affine",
           [](PlanBuilder& self, int source, int scale, int shift, const PostOpTuples& function) {
             const auto ops = ReadPostOps(function);
             const py::gil_scoped_release release;
             return self.Affine(source, scale, shift, ops);
           })
      .def("compare", &PlanBuilder::Compare, Release())
      .def("integer_binary", &PlanBuilder::IntegerBinary, Release())
      .def("select", &PlanBuilder::Select, Release())
      .def("softmax", &PlanBuilder::Softmax, Release())
      .def("attention",
           [](PlanBuilder& self, int q, int k, int v, int mask, float scale, bool heads_inside,
              const std::vector<std::array<Dims::value_type, 4>>& blocks, bool in_one_step) {
             std::vector<AttentionBlock> made;
             for (const auto& b : blocks) made.push_back({b[0], b[1], b[2], b[3]});
             const py::gil_scoped_release release;
             return self.Attention(q, k, v, mask, scale, heads_inside, made, in_one_step);
           })
      .def("can_attend", &PlanBuilder::CanAttend)
      .def_property_readonly("attention_rows", [](const PlanBuilder&) { return kAttentionRows; })
      .def("recurrent",
           [](PlanBuilder& self, const std::string& mode, int source, int weights, int recurrence,
              int bias, int hidden, int cell, bool final_states) {
             const RecurrentSpec spec = {mode, source, weights, recurrence,
                                         bias, hidden, cell,    final_states};
             const py::gil_scoped_release release;
             return self.Recurrent(spec);
           })
      .def("recurrence",
           [](PlanBuilder& self, const std::string& mode, int gates, int recurrence, int bias,
              int hidden, int cell, int directions, int hidden_size, int lengths,
              bool final_states) {
             const RecurrenceSpec spec = {mode, gates,      recurrence,  bias,    hidden,
                                          cell, directions, hidden_size, lengths, final_states};
             const py::gil_scoped_release release;
             return self.Recurrence(spec);
           })
      .def_static("unit_block", &PlanBuilder::UnitBlock)
      .def("layer_norm", &PlanBuilder::LayerNorm, Release())
      .def("can_squeeze",
           [](const PlanBuilder& self, int source, const PostOpTuples& inner,
              const PostOpTuples& gate) {
             return self.CanSqueeze(source, ReadPostOps(inner), ReadPostOps(gate));
           })
      .def("squeeze",
           [](PlanBuilder& self, int source, int inner, int inner_bias, int outer, int outer_bias,
              const PostOpTuples& inner_ops, const PostOpTuples& gate_ops) {
             const auto first = ReadPostOps(inner_ops), second = ReadPostOps(gate_ops);
             const py::gil_scoped_release release;
             return self.Squeeze(source, inner, inner_bias, outer, outer_bias, first, second);
           })
      .def("rms_norm", &PlanBuilder::RmsNorm, Release())
      .def("group_norm", &PlanBuilder::GroupNorm, Release())
      .def("prelu", &PlanBuilder::PRelu, Release())
      .def("batch_norm", &PlanBuilder::BatchNorm, Release())
      .def("reduce", &PlanBuilder::Reduce, Release())
      .def("concat", &PlanBuilder::Concat, Release())
      .def("resize", &PlanBuilder::Resize, Release())
      .def("windows",
           [](PlanBuilder& self, int source, const WindowTuple& vertical,
              const WindowTuple& horizontal, bool maximum) {
             const AxisWindows rows = ReadWindows(vertical), columns = ReadWindows(horizontal);
             const py::gil_scoped_release release;
             return self.Windows(source, rows, columns, maximum);
           })
      .def("embedding", &PlanBuilder::Embedding, Release())
      .def("embedding_norm",
           [](PlanBuilder& self, std::vector<int> ids, std::vector<int> tables,
              std::vector<int> addends, int scale, int shift, float epsilon, Dims out_shape,
              bool keep_sum) {
             const EmbeddingNormSpec spec = {
                 std::move(ids), std::move(tables), std::move(addends),   scale,
                 shift,          epsilon,           std::move(out_shape), keep_sum};
             const py::gil_scoped_release release;
             return self.EmbeddingNorm(spec);
           })
      .def("cast", [](PlanBuilder& self, int source,
                      const std::string& dtype) { return self.Cast(source, ParseDType(dtype)); })
      .def("host",
           [](PlanBuilder& self, const std::string& name, const std::vector<int>& inputs,
              const std::vector<std::pair<Dims, std::string>>& outputs, py::function function,
              const std::string& implementation) {
             std::vector<std::pair<Dims, DType>> typed;
             for (const auto& [shape, dtype] : outputs) {
               typed.emplace_back(shape, ParseDType(dtype));
             }
             return self.Host(name, inputs, typed, CallPython(std::move(function)), implementation);
           })
      .def("checkpoint",
           [](const PlanBuilder& self) {
             const auto mark = self.Checkpoint();
             return std::make_tuple(mark.values, mark.storages, mark.steps, mark.joined);
           })
      .def("rollback",
           [](PlanBuilder& self,
              const std::tuple<std::size_t, std::size_t, std::size_t, std::size_t>& mark) {
             self.Rollback(
                 {std::get<0>(mark), std::get<1>(mark), std::get<2>(mark), std::get<3>(mark)});
           })
      .def("lifetimes",
           [](PlanBuilder& self) {
             std::vector<std::tuple<std::size_t, int, int>> result;
             for (const Lifetime& life : self.Lifetimes()) {
               result.emplace_back(life.bytes, life.first, life.last);
             }
             return result;
           })
      .def("finish", &PlanBuilder::Finish, Release())
      .def_property_readonly("step_count",
                             [](const PlanBuilder& self) { return self.Checkpoint().steps; })
      .def("storage_of", &PlanBuilder::StorageOf)
      .def("is_constant", &PlanBuilder::IsConstant)
      .def("can_overwrite", &PlanBuilder::CanOverwrite)
      .def("describe", &PlanBuilder::Describe)
      .def("set_step_name", &PlanBuilder::SetStepName);
}

void BindPlan(py::module_& module) {
  py::class_<Plan>(module, "Plan")
      .def(
          "run",
          [](Plan& self, const Addresses& inputs, const Addresses& outputs, py::object context) {
            const auto from = Pointers(inputs);
            const auto to = Pointers(outputs);
            const py::gil_scoped_release release;
            self.Run(from, to, context.ptr());
          },
          "Runs the plan on the addresses of row-major inputs; writes to `outputs`.")
      .def(
          "profile",
          [](Plan& self, const Addresses& inputs, const Addresses& outputs, py::object context) {
            std::vector<long long> nanoseconds;
            const auto from = Pointers(inputs);
            const auto to = Pointers(outputs);
            const py::gil_scoped_release release;
            self.Run(from, to, context.ptr(), &nanoseconds);
            return nanoseconds;
          },
          "Runs once and returns the nanoseconds that each step took.")
      .def("output_handle", &Plan::OutputHandle)
      .def_property_readonly("steps",
                             [](const Plan& self) {
                               std::vector<std::pair<std::string, std::string>> steps;
                               for (const Step& step : self.data().steps) {
                                 steps.emplace_back(step.name, step.implementation);
                               }
                               return steps;
                             })
      .def_property_readonly("operations", [](const Plan& self) { return self.data().operations; })
      .def_property_readonly("arena_bytes", &Plan::ArenaBytes);
}

}  // namespace
}  // namespace pfb

PYBIND11_MODULE(_native, module) {
  module.doc() = "Plans of oneDNN primitives; see docs/native.md.";
  module.def(
      "all_ordinary",
      [](std::uintptr_t data, std::size_t count) {
        return pfb::AllOrdinary(reinterpret_cast<const float*>(data), count);
      },
      py::call_guard<py::gil_scoped_release>(),
      "True when all float32 elements at an address are finite and below 1e18 in magnitude.");
  pfb::BindBuilder(module);
  pfb::BindPlan(module);
  module.def("onednn_version", [] {
    const dnnl_version_t* version = dnnl_version();
    return std::make_tuple(version->major, version->minor, version->patch);
  });
  module.def("primitive_cache_capacity", [] {
    int capacity = 0;
    dnnl_get_primitive_cache_capacity(&capacity);
    return capacity;
  });
  module.def("set_primitive_cache_capacity",
             [](int capacity) { dnnl_set_primitive_cache_capacity(capacity); });
  module.def("winograd_tiles", [] {
    const pfb::TileChoices choices = pfb::AllTiles();
    return std::vector<std::pair<std::vector<int>, int>>(choices.begin(), choices.end());
  });
  module.def("remember_winograd_tile", &pfb::RememberTile);
  module.def(
      "use_pool",
      [](std::uintptr_t pool, std::uintptr_t allocate, std::uintptr_t free, std::uint32_t tag) {
        pfb::ArenaSource& source = pfb::TheArenaSource();
        source.pool = reinterpret_cast<void*>(pool);
        source.allocate = reinterpret_cast<decltype(source.allocate)>(allocate);
        source.free = reinterpret_cast<decltype(source.free)>(free);
        source.tag = tag;
      },
      "Arenas come from a block pool: its address and those of its functions.");
  module.def("openmp_runtime", &pfb::OpenMPRuntime);
  module.def("max_threads", &pfb::MaxThreads);
  module.def("set_max_threads", &pfb::SetMaxThreads);
  module.def("constant_cache", [] {
    const auto statistics = pfb::ConstantCache::Instance().statistics();
    return py::dict(py::arg("bytes") = statistics.bytes, py::arg("entries") = statistics.entries,
                    py::arg("hits") = statistics.hits, py::arg("misses") = statistics.misses);
  });
}
