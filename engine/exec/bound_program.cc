#include "engine/exec/bound_program.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace braid {

BoundProgram::BoundProgram(std::shared_ptr<const Program> program, Runtime& runtime,
                           std::vector<const StepParams*> params, std::vector<const WaitContext*> waits)
    : program_(std::move(program)), slots_(params.size()), arena_(program_->stats.arena_bytes) {
  for (const ProgramVariable& variable : program_->variables)
    variables_.push_back(runtime.variables().get_or_create(variable.name, variable.dtype, variable.shape));
  prepare_kernels(runtime);
  allocate_slots();
  bind_arguments(params, waits);
}

void BoundProgram::prepare_kernels(Runtime& runtime) {
  for (const ProgramOp& op : program_->ops) {
    kernels_.push_back(prepare(op, runtime));
    const PreparedKernel& kernel = kernels_.back();
    if (op.kind != OpKind::Kernel) continue;
    const std::string place = program_->place(static_cast<int>(kernels_.size()) - 1);
    if (!kernel.run == !kernel.run_async)
      throw Internal(place + ": a prepared kernel needs run or run_async, and not both");
    if (kernel.run_async && !op.async)
      throw Internal(place + ": only ops of lanes other than Compute may complete asynchronously");
  }
}

PreparedKernel BoundProgram::prepare(const ProgramOp& op, Runtime& runtime) const {
  PreparedKernel kernel;
  if (op.kind == OpKind::Copy) {
    const std::uint64_t bytes = program_->buffers[static_cast<std::size_t>(op.outputs[0].buffer)].bytes;
    kernel.run = [bytes](const KernelArgs& a) { std::memcpy(a.outputs[0], a.inputs[0], bytes); };
  } else if (op.kind == OpKind::Kernel) {
    const Graph& graph = program_->graph;
    const Node& node = graph.node(op.node);
    std::vector<OutputInfo> inputs;
    std::vector<const Tensor*> values;
    for (const ValueRef input : node.inputs) {
      inputs.push_back(graph.info(input));
      // Kernels see a handle as the variable that is behind it.
      if (inputs.back().dtype == DType::Resource) inputs.back().dtype = variable_of(graph, input).dtype;
      values.push_back(graph.known_value(input));
    }
    kernel = node.op->cpu(
        {node, inputs, node.outputs, values, runtime.pool(), runtime.services(), program_->deterministic});
  }
  return kernel;
}

void BoundProgram::allocate_slots() {
  slot_memory_.resize(slots_);
  for (const ProgramBuffer& buffer : program_->buffers) {
    if (buffer.kind != BufferKind::Slot) continue;
    for (auto& memory : slot_memory_) {
      memory.resize(std::max(memory.size(), static_cast<std::size_t>(buffer.index) + 1));
      memory[static_cast<std::size_t>(buffer.index)] =
          Tensor::zeros(DType::UInt8, Shape{static_cast<std::int64_t>(buffer.bytes)});
    }
  }
}

void* BoundProgram::address(int slot, int buffer) const {
  if (buffer < 0) return nullptr;
  const ProgramBuffer& b = program_->buffers[static_cast<std::size_t>(buffer)];
  const auto index = static_cast<std::size_t>(b.index);
  // Kernels take inputs as void* for the sake of variables; constants are not written.
  switch (b.kind) {
    case BufferKind::Arena:
      return arena_.at(b.offset);
    case BufferKind::Variable:
      return const_cast<std::byte*>(variables_[index].raw());
    case BufferKind::Slot:
      return const_cast<std::byte*>(slot_memory_[static_cast<std::size_t>(slot)][index].raw());
    case BufferKind::Constant:
      return const_cast<std::byte*>(program_->constants[index].raw());
    case BufferKind::Feed:
      return nullptr;  // the step's
  }
  return nullptr;
}

void BoundProgram::bind_arguments(const std::vector<const StepParams*>& params,
                                  const std::vector<const WaitContext*>& waits) {
  // The synchronous ops of a stream run one after the other, also over steps, and share its scratch memory.
  std::vector<std::size_t> stream_scratch(program_->streams.size(), 0);
  std::size_t pointers = 0, async_ops = 0;
  for (std::size_t op = 0; op < program_->ops.size(); ++op) {
    const ProgramOp& p = program_->ops[op];
    pointers += p.inputs.size() + p.outputs.size();
    async_ops += p.async;
    auto& bytes = stream_scratch[static_cast<std::size_t>(p.stream)];
    if (!p.async) bytes = std::max(bytes, kernels_[op].scratch_bytes);
  }
  scratch_.reserve(stream_scratch.size() + async_ops * slots_);
  for (const std::size_t bytes : stream_scratch) scratch_.emplace_back(bytes);

  feed_positions_.resize(program_->feeds.size());
  pointers_.resize(slots_);
  args_.resize(slots_);
  for (std::size_t slot = 0; slot < slots_; ++slot) {
    auto& list = pointers_[slot];
    list.reserve(pointers);  // never moves below: arguments point into it
    for (std::size_t op = 0; op < program_->ops.size(); ++op) {
      const ProgramOp& p = program_->ops[op];
      const auto add = [&](const std::vector<Operand>& operands) {
        void** first = list.data() + list.size();
        for (const Operand& operand : operands) {
          const bool is_feed =
              operand.buffer >= 0 &&
              program_->buffers[static_cast<std::size_t>(operand.buffer)].kind == BufferKind::Feed;
          if (is_feed && slot == 0) {
            const int feed = program_->buffers[static_cast<std::size_t>(operand.buffer)].index;
            feed_positions_[static_cast<std::size_t>(feed)].push_back(list.size());
          }
          list.push_back(address(static_cast<int>(slot), operand.buffer));
        }
        return first;
      };
      KernelArgs args{};
      args.inputs = add(p.inputs);
      args.outputs = add(p.outputs);
      args.params = params[slot];
      args.wait = waits[slot];
      args.stream = StreamRef::host();
      if (p.async) scratch_.emplace_back(kernels_[op].scratch_bytes);
      args.scratch = p.async ? scratch_.back().at(0) : scratch_[static_cast<std::size_t>(p.stream)].at(0);
      args_[slot].push_back(args);
    }
  }
}

void BoundProgram::set_feed(int slot, int feed, const void* memory) {
  for (const std::size_t position : feed_positions_[static_cast<std::size_t>(feed)])
    pointers_[static_cast<std::size_t>(slot)][position] = const_cast<void*>(memory);
}

Tensor BoundProgram::fetch(int slot, int fetch, const std::vector<Tensor>& feeds) const {
  const ProgramFetch& f = program_->fetches[static_cast<std::size_t>(fetch)];
  const ProgramBuffer& buffer = program_->buffers[static_cast<std::size_t>(f.buffer)];
  if (buffer.kind == BufferKind::Feed)
    return feeds[static_cast<std::size_t>(buffer.index)].clone().reshaped(f.shape);
  if (buffer.kind == BufferKind::Constant)
    return program_->constants[static_cast<std::size_t>(buffer.index)].clone().reshaped(f.shape);
  Tensor copy(f.dtype, f.shape);
  if (copy.bytes() != 0) std::memcpy(copy.raw(), address(slot, f.buffer), copy.bytes());
  return copy;
}

}  // namespace braid
