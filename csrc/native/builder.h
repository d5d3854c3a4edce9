// Builds a plan: one method per operation, each choosing layouts and creating primitives once.
//
// Values are named by small integers.  A method takes the values an operation reads and returns
// the value it makes.  Layouts are free: a value keeps whatever layout the primitive that made it
// chose, and a reorder is inserted only where a consumer cannot take that layout (and only once
// per value and layout).
//
// A builder may be used by one thread at a time.  It needs no Python state.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "parallel.h"
#include "post_ops.h"
#include "step.h"
#include "value.h"

namespace pfb {

class Plan;
struct AxisWindows;
struct WinogradShape;

struct BuilderSettings {
  int threads = 1;
  bool channels_last = false;  // convolutions in NHWC instead of what oneDNN prefers
  // How 3x3 convolutions in NHWC run: "direct", "winograd2", "winograd4" (where they apply), or
  // "auto": the fastest of these, measured once per shape and process.
  std::string algorithm = "auto";
};

struct ConvolutionSpec {
  // What is read: one image, or several whose channels lie side by side.
  std::vector<int> sources;
  int weights = -1;
  int bias = -1;  // -1: none
  Dims strides;
  Dims dilations;
  Dims pad_begin;
  Dims pad_end;
  int groups = 1;
  PostOps post_ops;
  // Channels-last memory of the result's shape to write to, where that costs nothing; -1: none.
  int target = -1;
};

struct RecurrentSpec {
  std::string mode;     // "LSTM", "GRU", "RNN_TANH" or "RNN_RELU"
  int source = -1;      // [steps, batch, in]
  int weights = -1;     // [directions, in, gates, hidden]
  int recurrence = -1;  // [directions, hidden, gates, hidden]
  int bias = -1;        // [directions, gates, hidden]
  int hidden = -1;      // [directions, batch, hidden]; -1: zeros
  int cell = -1;
  bool final_states = false;  // whether they are wanted
};

// The part of an LSTM or GRU layer that runs step by step, by our own loop.
struct RecurrenceSpec {
  std::string mode;
  int gates = -1;       // [steps, batch, directions * gates * padded]: x W + b, units padded
  int recurrence = -1;  // [directions, blocks, hidden, gates, UnitBlock()]
  int bias = -1;        // of GRU: [directions * padded]
  int hidden = -1;      // as in RecurrentSpec
  int cell = -1;
  int directions = 1;
  int hidden_size = 0;
  int lengths = -1;  // of the sequences: [batch], whole numbers
  bool final_states = false;
};

// The sum of rows of tables and of dense rows, normalised: the start of a transformer.
struct EmbeddingNormSpec {
  std::vector<int> ids;      // int64 or int32, all of one number of elements
  std::vector<int> tables;   // [ids, width] each
  std::vector<int> addends;  // [..., width], rows repeated as often as it takes
  int scale = -1;
  int shift = -1;
  float epsilon = 0;
  Dims out_shape;
  bool keep_sum = false;  // whether the sum is wanted too
};

// Queries [begin, end) that look at keys [first_key, last_key) only.
struct AttentionBlock {
  Dims::value_type begin, end, first_key, last_key;
};

// The lifetime of one block of the arena: bytes, first step, last step.
struct Lifetime {
  std::size_t bytes;
  int first;
  int last;
};

class PlanBuilder {
 public:
  explicit PlanBuilder(BuilderSettings settings);

  // -- values from outside ---------------------------------------------------------------------
  int Input(const Dims& shape, DType dtype);
  // The bytes at `data` must stay until Finish, and for `borrowed` constants as long as the plan.
  int Constant(const void* data, const Dims& shape, DType dtype, bool borrowed);
  // Marks a value as the next result of the plan.
  void Output(int value);

  // -- views: no work at run time where the layout allows
  // ------------------------------------------
  int Reshape(int value, const Dims& shape);
  int Permute(int value, const std::vector<int>& permutation);
  int Slice(int value, const Dims& begin, const Dims& shape, const Dims& step);
  int Expand(int value, const Dims& shape);

  // -- computation -----------------------------------------------------------------------------
  // The result is `spec.target` where that could be written.
  int Convolution(const ConvolutionSpec& spec);
  int Deconvolution(const ConvolutionSpec& spec, const Dims& out_shape);
  int MatMul(int a, int b, int bias, const PostOps& post_ops);
  int Pool(int source, const std::string& kind, const Dims& kernel, const Dims& strides,
           const Dims& pad_begin, const Dims& out_shape);
  int Eltwise(int source, const PostOps& functions);
  int Binary(const std::string& kind, int a, int b, const Dims& out_shape, const PostOps& post_ops);
  // function(source * scale + shift), channel by channel, of an image whose channels are last,
  // perhaps some of a larger one's; CanAffine says whether.
  bool CanAffine(int source, const PostOps& function) const;
  int Affine(int source, int scale, int shift, const PostOps& function);
  int BroadcastBinary(const std::string& kind, int a, int b, const Dims& out_shape);
  // Comparison and logic to bool, arithmetic of whole numbers, and x or y by a bool; see compare.h.
  int Compare(const std::string& kind, int a, int b, const Dims& out_shape);
  int IntegerBinary(const std::string& kind, int a, int b, const Dims& out_shape);
  int Select(int condition, int x, int y, const Dims& out_shape);
  int Softmax(int source, int axis, bool log);
  // softmax(scale * q k^T + mask) v for q, k, v of shape [..., sequence, depth]; mask is -1 or
  // broadcasts.  `heads_inside`: the result is laid out as [batch, sequence, heads, depth].
  // `blocks`, where given, cover the queries in order.  `in_one_step`, where CanAttend: by a loop
  // of our own, which needs blocks of at most kAttentionRows.
  int Attention(int q, int k, int v, int mask, float scale, bool heads_inside,
                const std::vector<AttentionBlock>& blocks, bool in_one_step);
  bool CanAttend(int q, int k, int v, int mask) const;
  // The sequence [steps, batch, directions * hidden], then the final states where wanted.
  std::vector<int> Recurrent(const RecurrentSpec& spec);
  std::vector<int> Recurrence(const RecurrenceSpec& spec);
  // Hidden units per block of a packed recurrence; 0 where the loop does not run.
  static int UnitBlock();
  int LayerNorm(int source, int scale, int shift, float epsilon);
  // Over the last dimension; scale may be -1.
  int RmsNorm(int source, int scale, float epsilon);
  // Over the pixels and channels of each group; scale and shift may be -1.
  int GroupNorm(int source, int scale, int shift, int groups, float epsilon);
  // x where positive, else slopes * x; one slope, or one per channel (dimension 1).
  int PRelu(int source, int slopes);
  // y = x * gate(outer inner(inner mean(x) + b) + b) in one step; CanSqueeze says whether.
  bool CanSqueeze(int source, const PostOps& inner, const PostOps& gate) const;
  int Squeeze(int source, int inner, int inner_bias, int outer, int outer_bias,
              const PostOps& inner_ops, const PostOps& gate_ops);
  int BatchNorm(int source, int mean, int variance, int scale, int shift, float epsilon);
  int Reduce(int source, const std::string& kind, std::vector<int> axes);
  int Concat(const std::vector<int>& sources, int axis);
  // The channels of two images in turn, as one image or as two halves of it; see shuffle.h.
  std::vector<int> Shuffle(int a, int b, bool halves);
  // An image with channels last that nothing has been written to yet, and a copy into a part of it.
  int Room(const Dims& shape);
  void CopyInto(int source, int part);
  int Resize(int source, const std::string& kind, const Dims& out_shape);
  // An image [N, C, H, W] by windows of rows and columns of its own; see windows.h.
  int Windows(int source, const AxisWindows& vertical, const AxisWindows& horizontal, bool maximum);
  int Embedding(int ids, int table, long long padding_index);
  // The normalised sum, then the sum where it is wanted.
  std::vector<int> EmbeddingNorm(const EmbeddingNormSpec& spec);
  int Cast(int source, DType dtype);

  // `function` is called with the addresses of row-major inputs and returns addresses of row-major
  // outputs of the given shapes, which stay valid until the run ends.  `implementation`: what
  // reports call it.
  std::vector<int> Host(const std::string& name, const std::vector<int>& inputs,
                        const std::vector<std::pair<Dims, DType>>& outputs, HostFunction function,
                        const std::string& implementation);

  // -- second thoughts ---------------------------------------------------------------------------
  // Rollback(Checkpoint()) undoes everything that was added in between.
  struct Mark {
    std::size_t values, storages, steps, joined;
  };
  Mark Checkpoint() const {
    return {values_.size(), storages_.size(), steps_.size(), joined_.size()};
  }
  void Rollback(const Mark& mark);

  // -- finishing -------------------------------------------------------------------------------
  std::vector<Lifetime> Lifetimes();
  std::unique_ptr<Plan> Finish(const std::vector<std::size_t>& offsets, std::size_t arena_bytes);

  // -- asking ----------------------------------------------------------------------------------
  int StorageOf(int value) const { return values_[value].storage; }
  bool IsConstant(int value) const;
  bool channels_last() const { return settings_.channels_last; }
  // Whether a sum post-op may write the storage of `value`: it is the arena's, and the whole of it.
  bool CanOverwrite(int value) const;
  std::string Describe(int value) const;
  // The name that following steps carry in reports.
  void SetStepName(std::string name) { step_name_ = std::move(name); }

 private:
  using Arguments = std::vector<std::pair<int, int>>;

  // While it lives, what is created is created for, and will run with, as many threads as `work`
  // (floating-point operations, or their equivalent in time) repays.
  class WorkScope {
   public:
    WorkScope(PlanBuilder& builder, double work);
    WorkScope(PlanBuilder& builder, double work, bool parallel);
    ~WorkScope();
    WorkScope(const WorkScope&) = delete;
    WorkScope& operator=(const WorkScope&) = delete;

   private:
    PlanBuilder& builder_;
    int before_;
    ThreadScope scope_;
  };
  double ElementwiseWork(const Dims& shape) const;

  int AddValue(const Desc& desc, DType dtype, int storage, std::size_t offset = 0);
  int NewValue(const Desc& desc, DType dtype);
  // The same bytes under another descriptor, `offset` bytes further on.
  int View(int value, const Desc& desc, std::size_t offset = 0);
  const Desc& desc(int value) const { return values_[value].desc; }
  Dims shape(int value) const { return values_[value].desc.get_dims(); }
  Storage& storage(int value) { return storages_[values_[value].storage]; }

  // The same tensor in another layout; the value itself when it has that layout.
  int InLayout(int value, const Desc& desc);
  int Packed(int value, const Desc& desc);
  int RowMajorOf(int value);
  int CompactOf(int value);
  int Broadcastable(int value, const Dims& out_shape);
  // A constant per-channel vector for normalisation: float32, plain.
  int PlainVector(int value);

  const ContentHash& HashOf(Storage& storage);
  void Materialise(int value);
  void Touch(int value);
  void AddStep(Step step);
  void AddKernel(Arguments arguments, Kernel kernel);
  template <typename PrimitiveDesc>
  void AddPrimitive(const PrimitiveDesc& pd, Arguments arguments);
  void CopyStep(int from, int to);

  // Convolutions by Winograd's algorithm (build_winograd.cc); tile 0 stands for direct.
  bool WinogradApplies(const ConvolutionSpec& spec, const Dims& out) const;
  int ChooseTile(const ConvolutionSpec& spec, const Dims& out);
  Dims SourceShape(const ConvolutionSpec& spec) const;
  int JoinedSource(const ConvolutionSpec& spec);
  double MeasureSeconds(const ConvolutionSpec& spec, const std::string& algorithm);
  int Winograd(const ConvolutionSpec& spec, const Dims& out, int tile);
  int TransformedWeights(int weights, const WinogradShape& shape, const Dims& u_shape,
                         const Desc& u_desc);

  bool IsPlaneSoftmax(int source, int axis) const;
  int PlaneSoftmax(int source, int axis);

  bool HasPixels(int value) const;
  int ConcatPrimitive(const std::vector<int>& sources, int axis, const Desc& layout);
  // Whether `sources` may become parts of a result of layout `whole`, written where they belong.
  bool CanJoin(const std::vector<int>& sources, int axis, const Desc& whole) const;
  int Join(const std::vector<int>& sources, const Desc& whole);
  int Flattened(int a, int b, int bias, const PostOps& post_ops);
  // `layout` of the result; row-major when empty.
  // `target`: a value to write to, otherwise a new one is made.
  int Batched(int a, int b, int bias, const PostOps& post_ops, const Desc& layout = Desc(),
              int target = -1);
  int AttendInOneStep(int q, int k, int v, int mask, float scale, const Desc& layout,
                      const std::vector<AttentionBlock>& blocks);
  int AttentionOf(int q, int k, int v, int mask, float scale, const Desc& layout, int target);

  // Attributes with user scratchpad and `post_ops`.  Operands as large as the result are expected
  // in its layout `destination`, smaller ones row-major.
  dnnl::primitive_attr Attributes(const PostOps& post_ops, const Desc& destination);
  dnnl::primitive_attr PlainAttributes() { return Attributes({}, Desc()); }
  // The operands of `post_ops` in those layouts.
  void AppendPostOpArguments(const PostOps& post_ops, const Desc& destination,
                             Arguments& arguments);
  Desc OperandLayout(int operand, const Desc& destination) const;
  // Whether an operand of `post_ops` is as large as the result.
  bool HasFullOperand(const PostOps& post_ops, const Dims& result) const;
  // The value a "sum" post-op adds to, ready to be overwritten in layout `desc`; -1 without one.
  int SumTarget(const PostOps& post_ops, const Desc& desc);
  // Applies `post_ops` as steps of their own, where a primitive could not take them.
  int ApplySeparately(int value, const PostOps& post_ops);
  // The channels-last or free layout that convolutions ask for.
  Desc ConvolutionLayout(const Dims& shape) const;

  BuilderSettings settings_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::vector<Value> values_;
  std::vector<Storage> storages_;
  std::vector<Step> steps_;
  std::vector<int> outputs_;
  std::map<int, std::vector<int>> layouts_;  // value -> the same tensor in other layouts
  // Values that moved from one storage into a part of another, and what the first one was.
  struct Joined {
    std::vector<int> values;
    int from;
    std::size_t offset;
    int first_step, last_step;
  };
  std::vector<Joined> joined_;
  std::string step_name_;
  int step_threads_;
  double operations_ = 0;
  std::size_t scratchpad_bytes_ = 0;
  int inputs_ = 0;
  int handles_ = 0;
  bool outputs_bound_ = false;

  void BindOutputs();
};

template <typename PrimitiveDesc>
void PlanBuilder::AddPrimitive(const PrimitiveDesc& pd, Arguments arguments) {
  Step step;
  step.arguments = std::move(arguments);
  step.implementation = pd.impl_info_str();
  step.primitive = dnnl::primitive(pd.get());
  const std::size_t scratchpad = pd.scratchpad_desc().get_size();
  step.scratchpad = scratchpad > 0;
  scratchpad_bytes_ = std::max(scratchpad_bytes_, scratchpad);
  AddStep(std::move(step));
}

}  // namespace pfb
