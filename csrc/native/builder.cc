#include "builder.h"

#include <algorithm>
#include <stdexcept>

#include "interleave.h"
#include "parallel.h"
#include "plan.h"
#include "strided_copy.h"

namespace pfb {
namespace {

constexpr std::size_t kAlignment = 64;

// Work that takes one core a few microseconds; waking the others takes as long.
constexpr double kSerialWork = 3e5;

std::size_t Aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

PlanBuilder::PlanBuilder(BuilderSettings settings)
    : settings_(std::move(settings)),
      engine_(dnnl::engine::kind::cpu, 0),
      stream_(engine_),
      step_threads_(settings_.threads) {}

PlanBuilder::WorkScope::WorkScope(PlanBuilder& builder, double work)
    : WorkScope(builder, work, work >= kSerialWork) {}

// All threads or one: OpenMP teams of changing size are slow to form.
PlanBuilder::WorkScope::WorkScope(PlanBuilder& builder, double work, bool parallel)
    : builder_(builder),
      before_(builder.step_threads_),
      scope_(parallel ? builder.settings_.threads : 1) {
  builder_.step_threads_ = parallel ? builder.settings_.threads : 1;
  builder_.operations_ += work;
}

PlanBuilder::WorkScope::~WorkScope() { builder_.step_threads_ = before_; }

// Reading and writing an element takes about as long as so many operations.
double PlanBuilder::ElementwiseWork(const Dims& shape) const {
  constexpr double kPerElement = 30;
  return kPerElement * static_cast<double>(ElementCount(shape));
}

// -- values and storages --------------------------------------------------------------------------

int PlanBuilder::AddValue(const Desc& desc, DType dtype, int storage, std::size_t offset) {
  values_.push_back({WithPlainUnits(desc), dtype, storage, offset});
  return static_cast<int>(values_.size()) - 1;
}

int PlanBuilder::NewValue(const Desc& desc, DType dtype) {
  Storage storage;
  storage.bytes = desc.get_size();
  storages_.push_back(std::move(storage));
  return AddValue(desc, dtype, static_cast<int>(storages_.size()) - 1);
}

int PlanBuilder::View(int value, const Desc& desc, std::size_t offset) {
  const Value& viewed = values_[value];
  return AddValue(desc, viewed.dtype, viewed.storage, viewed.offset + offset);
}

int PlanBuilder::Input(const Dims& shape, DType dtype) {
  const int value = NewValue(RowMajor(shape, dtype), dtype);
  storage(value).kind = Storage::Kind::kInput;
  storage(value).index = inputs_++;
  return value;
}

int PlanBuilder::Constant(const void* data, const Dims& shape, DType dtype, bool borrowed) {
  const int value = NewValue(RowMajor(shape, dtype), dtype);
  storage(value).kind = Storage::Kind::kConstant;
  storage(value).data = data;
  storage(value).borrowed = borrowed;
  return value;
}

void PlanBuilder::Output(int value) { outputs_.push_back(value); }

bool PlanBuilder::IsConstant(int value) const {
  return storages_[values_[value].storage].kind == Storage::Kind::kConstant;
}

bool PlanBuilder::CanOverwrite(int value) const {
  const Storage& storage = storages_[values_[value].storage];
  const Desc& layout = values_[value].desc;
  return storage.kind == Storage::Kind::kArena && values_[value].offset == 0 &&
         layout.get_size() == storage.bytes;
}

std::string PlanBuilder::Describe(int value) const {
  const Desc& layout = values_[value].desc;
  std::string text = Name(values_[value].dtype);
  text += "[";
  const Dims shape = layout.get_dims();
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i ? "," : "") + std::to_string(shape[i]);
  }
  text += "]";
  if (IsRowMajor(layout)) return text;
  if (!IsStrided(layout)) return text + " blocked";
  return text + (IsDense(layout) ? " permuted" : " strided");
}

// -- layouts --------------------------------------------------------------------------------------

int PlanBuilder::InLayout(int value, const Desc& wanted) {
  if (desc(value) == wanted) return value;
  for (const int other : layouts_[value]) {
    if (desc(other) == wanted) return other;
  }
  if (IsRowMajor(wanted) && IsRowMajor(desc(value))) return View(value, wanted);
  int made;
  if (IsConstant(value)) {
    made = Packed(value, wanted);
  } else {
    made = NewValue(wanted, values_[value].dtype);
    CopyStep(value, made);
  }
  layouts_[value].push_back(made);
  return made;
}

void PlanBuilder::CopyStep(int from, int to) {
  const WorkScope work(*this, ElementwiseWork(shape(from)));
  const Desc& source = desc(from);
  const Desc& destination = desc(to);
  const std::string name = std::move(step_name_);
  step_name_ = "reorder";
  const Dims dims = source.get_dims();
  const bool image = dims.size() > 2 && dims[1] == 3 && values_[from].dtype == DType::kFloat32 &&
                     HasDensePlanes(source) &&
                     destination == ChannelsLast(dims, dnnl::memory::data_type::f32);
  if (image && InterleaveSupported()) {
    const auto batch = static_cast<std::size_t>(dims[0]);
    const auto pixels = static_cast<std::size_t>(ElementCount(dims)) / (3 * batch);
    const Dims strides = source.get_strides();
    AddKernel({{0, from}, {1, to}},
              InterleaveKernel(batch, pixels, static_cast<std::size_t>(strides[1]),
                               batch > 1 ? static_cast<std::size_t>(strides[0]) : 0));
  } else if (Computable(values_[from].dtype)) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::reorder::primitive_desc pd(engine_, source, engine_, destination, attributes);
    AddPrimitive(pd, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
  } else {
    AddKernel({{0, from}, {1, to}},
              StridedCopy(source.get_dims(), source.get_strides(), destination.get_strides(),
                          SizeOf(values_[from].dtype)));
  }
  step_name_ = name;
}

int PlanBuilder::RowMajorOf(int value) {
  return InLayout(value, RowMajor(shape(value), values_[value].dtype));
}

int PlanBuilder::CompactOf(int value) {
  return IsDense(desc(value)) ? value : InLayout(value, Compact(desc(value)));
}

// -- constants ------------------------------------------------------------------------------------

const ContentHash& PlanBuilder::HashOf(Storage& storage) {
  if (!storage.hash) storage.hash = HashBytes(storage.data, storage.bytes);
  return *storage.hash;
}

int PlanBuilder::Packed(int value, const Desc& wanted) {
  const Desc from = desc(value);
  const std::size_t offset = values_[value].offset;
  Storage source = storage(value);
  Storage packed;
  packed.kind = Storage::Kind::kConstant;
  packed.bytes = wanted.get_size();
  // Slices of one constant differ in nothing but where they start.
  ContentHash hash = HashOf(source);
  hash[1] += offset * 0x9e3779b97f4a7c15ULL;
  packed.packed = ConstantCache::Instance().Get(hash, from, wanted, [&] {
    const auto* bytes =
        static_cast<const char*>(source.packed ? source.packed->get_data_handle() : source.data);
    dnnl::memory plain(from, engine_, const_cast<char*>(bytes + offset));
    dnnl::memory result(wanted, engine_);
    dnnl::reorder(plain, result).execute(stream_, plain, result);
    stream_.wait();
    return result;
  });
  // A packed constant packed again is known by its own bytes.
  packed.data = packed.packed->get_data_handle();
  storages_.push_back(std::move(packed));
  return AddValue(wanted, values_[value].dtype, static_cast<int>(storages_.size()) - 1);
}

// Copies the caller's bytes, which are promised only until Finish, into the cache.
void PlanBuilder::Materialise(int value) {
  Storage& held = storage(value);
  if (held.kind != Storage::Kind::kConstant || held.packed || held.borrowed) return;
  const Desc bytes({static_cast<dnnl::memory::dim>(held.bytes)}, dnnl::memory::data_type::u8,
                   dnnl::memory::format_tag::a);
  held.packed = ConstantCache::Instance().Get(HashOf(held), bytes, bytes, [&] {
    dnnl::memory copy(bytes, engine_);
    std::copy_n(static_cast<const char*>(held.data), held.bytes,
                static_cast<char*>(copy.get_data_handle()));
    return copy;
  });
}

int PlanBuilder::PlainVector(int value) {
  const int plain = RowMajorOf(value);
  const auto count = ElementCount(shape(plain));
  return Reshape(plain, {static_cast<dnnl::memory::dim>(count)});
}

// -- steps ----------------------------------------------------------------------------------------

void PlanBuilder::Touch(int value) {
  Materialise(value);
  Storage& touched = storage(value);
  const int step = static_cast<int>(steps_.size());
  touched.first_step = std::min(touched.first_step, step);
  touched.last_step = std::max(touched.last_step, step);
}

void PlanBuilder::AddStep(Step step) {
  for (const auto& [role, value] : step.arguments) Touch(value);
  if (step.name.empty()) step.name = step_name_;
  step.threads = step_threads_;
  steps_.push_back(std::move(step));
}

void PlanBuilder::AddKernel(Arguments arguments, Kernel kernel) {
  if (arguments.size() > kMaxKernelArguments) {
    throw std::invalid_argument("more operands than a kernel can take");
  }
  Step step;
  step.arguments = std::move(arguments);
  step.implementation = "kernel";
  step.kernel = std::move(kernel);
  AddStep(std::move(step));
}

std::vector<int> PlanBuilder::Host(const std::string& name, const std::vector<int>& inputs,
                                   const std::vector<std::pair<Dims, DType>>& outputs,
                                   HostFunction function, const std::string& implementation) {
  Step step;
  for (const int input : inputs) step.arguments.emplace_back(0, RowMajorOf(input));
  step.host_inputs = inputs.size();
  std::vector<int> results;
  for (const auto& [shape, dtype] : outputs) {
    const int value = NewValue(RowMajor(shape, dtype), dtype);
    storage(value).kind = Storage::Kind::kHandle;
    storage(value).index = handles_++;
    results.push_back(value);
    step.arguments.emplace_back(0, value);
  }
  step.name = name;
  step.implementation = implementation;
  step.host = std::move(function);
  AddStep(std::move(step));
  return results;
}

void PlanBuilder::Rollback(const Mark& mark) {
  for (; joined_.size() > mark.joined; joined_.pop_back()) {
    const Joined& undone = joined_.back();
    for (const int value : undone.values) {
      values_[value].offset -= undone.offset;
      values_[value].storage = undone.from;
    }
    storages_[undone.from].first_step = undone.first_step;
    storages_[undone.from].last_step = undone.last_step;
  }
  values_.resize(mark.values);
  storages_.resize(mark.storages);
  steps_.resize(mark.steps);
  const int last = static_cast<int>(mark.steps) - 1;
  for (Storage& storage : storages_) storage.last_step = std::min(storage.last_step, last);
  for (auto& [value, others] : layouts_) {
    others.erase(
        std::remove_if(others.begin(), others.end(),
                       [&](int other) { return static_cast<std::size_t>(other) >= mark.values; }),
        others.end());
  }
}

// -- attributes -----------------------------------------------------------------------------------

Desc PlanBuilder::OperandLayout(int operand, const Desc& destination) const {
  const bool full = shape(operand) == destination.get_dims();
  return full ? destination : RowMajor(shape(operand), DType::kFloat32);
}

bool PlanBuilder::HasFullOperand(const PostOps& post_ops, const Dims& result) const {
  return std::any_of(post_ops.begin(), post_ops.end(), [&](const PostOp& op) {
    return op.kind != "sum" && op.value >= 0 && shape(op.value) == result;
  });
}

dnnl::primitive_attr PlanBuilder::Attributes(const PostOps& post_ops, const Desc& destination) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops chain;
  for (const PostOp& op : post_ops) {
    if (op.kind == "sum") {
      chain.append_sum(1.0F);
    } else if (op.value >= 0) {
      chain.append_binary(BinaryAlgorithm(op.kind), OperandLayout(op.value, destination));
    } else {
      chain.append_eltwise(EltwiseAlgorithm(op.kind), op.alpha, op.beta);
    }
  }
  attributes.set_post_ops(chain);
  return attributes;
}

void PlanBuilder::AppendPostOpArguments(const PostOps& post_ops, const Desc& destination,
                                        Arguments& arguments) {
  for (int i = 0; i < static_cast<int>(post_ops.size()); ++i) {
    const PostOp& op = post_ops[static_cast<std::size_t>(i)];
    if (op.kind == "sum" || op.value < 0) continue;
    arguments.emplace_back(DNNL_ARG_ATTR_MULTIPLE_POST_OP(i) | DNNL_ARG_SRC_1,
                           InLayout(op.value, OperandLayout(op.value, destination)));
  }
}

int PlanBuilder::SumTarget(const PostOps& post_ops, const Desc& wanted) {
  for (const PostOp& op : post_ops) {
    if (op.kind != "sum") continue;
    const int target = InLayout(op.value, wanted);
    if (!CanOverwrite(target)) throw std::logic_error("a sum post-op on memory that must stay");
    return AddValue(wanted, DType::kFloat32, values_[target].storage);
  }
  return -1;
}

// -- finishing ------------------------------------------------------------------------------------

// Results are written straight into the caller's memory where the value owns its storage; views,
// constants, inputs and values in other layouts are copied there by a last step.
void PlanBuilder::BindOutputs() {
  if (outputs_bound_) return;
  outputs_bound_ = true;
  step_name_ = "output";
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    int value = RowMajorOf(outputs_[i]);
    const bool whole = values_[value].offset == 0 && desc(value).get_size() == storage(value).bytes;
    const auto kind = storage(value).kind;
    const bool taken = std::any_of(outputs_.begin(), outputs_.begin() + i, [&](int earlier) {
      return values_[earlier].storage == values_[value].storage;
    });
    const bool own = kind == Storage::Kind::kArena || kind == Storage::Kind::kHandle;
    if (!own || !whole || taken) {
      const int copy = NewValue(RowMajor(shape(value), values_[value].dtype), values_[value].dtype);
      AddKernel({{0, value}, {1, copy}},
                StridedCopy(shape(value), desc(value).get_strides(), desc(copy).get_strides(),
                            SizeOf(values_[value].dtype)));
      value = copy;
    }
    if (storage(value).kind == Storage::Kind::kArena) {
      storage(value).kind = Storage::Kind::kOutput;
      storage(value).index = static_cast<int>(i);
    }
    outputs_[i] = value;
  }
}

std::vector<Lifetime> PlanBuilder::Lifetimes() {
  BindOutputs();
  std::vector<Lifetime> lifetimes;
  for (const Storage& storage : storages_) {
    if (storage.kind == Storage::Kind::kArena && storage.last_step >= 0) {
      lifetimes.push_back({Aligned(storage.bytes), storage.first_step, storage.last_step});
    }
  }
  return lifetimes;
}

std::unique_ptr<Plan> PlanBuilder::Finish(const std::vector<std::size_t>& offsets,
                                          std::size_t arena_bytes) {
  BindOutputs();
  std::size_t next = 0;
  for (Storage& storage : storages_) {
    if (storage.kind != Storage::Kind::kArena || storage.last_step < 0) continue;
    if (next == offsets.size()) throw std::invalid_argument("fewer offsets than lifetimes");
    storage.offset = offsets[next++];
    if (storage.offset % kAlignment != 0 || storage.offset + storage.bytes > arena_bytes) {
      throw std::invalid_argument("an offset is not aligned or lies outside the arena");
    }
  }
  if (next != offsets.size()) throw std::invalid_argument("more offsets than lifetimes");
  for (Storage& storage : storages_) {
    const bool unused_copy = storage.kind == Storage::Kind::kConstant && storage.last_step < 0;
    if (unused_copy) storage.packed.reset();
  }
  PlanData data;
  data.engine = engine_;
  data.values = std::move(values_);
  data.storages = std::move(storages_);
  data.steps = std::move(steps_);
  data.outputs = std::move(outputs_);
  data.arena_bytes = Aligned(arena_bytes);
  data.scratchpad_bytes = Aligned(scratchpad_bytes_);
  data.threads = settings_.threads;
  data.operations = operations_;
  return std::make_unique<Plan>(std::move(data));
}

}  // namespace pfb
