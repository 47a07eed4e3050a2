#include "engine/exec/bound_program.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "engine/ir/tensor.h"

namespace braid {
namespace {

constexpr std::uint64_t kNoOffset = std::numeric_limits<std::uint64_t>::max();
/// Of device memory; what vector loads and TMA like.
constexpr std::uint64_t kDeviceAlignment = 256;
constexpr std::uint64_t kNumberOffset = 128;  // of the step's number in the inputs; the params are before it
static_assert(sizeof(StepParams) <= kNumberOffset && sizeof(StepStatus) <= kDeviceAlignment);

std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kDeviceAlignment - 1) & ~(kDeviceAlignment - 1);
}

Accelerator* device_for(const Program& program, Runtime& runtime) {
  if (program.domain == Domain::Host) return nullptr;
  if (!runtime.device()) throw InvalidArgument("the program is one of a device, and there is none");
  return runtime.device();
}

/// By buffer: a variable of the host that ops of the device copy from or to.
std::vector<char> copied_variables(const Program& program) {
  std::vector<char> copied(program.buffers.size(), 0);
  for (const ProgramOp& op : program.ops)
    for (const Operand& in : op.inputs)
      if (in.buffer >= 0 && op.domain == Domain::Device) {
        const ProgramBuffer& buffer = program.buffers[static_cast<std::size_t>(in.buffer)];
        copied[static_cast<std::size_t>(in.buffer)] =
            buffer.kind == BufferKind::Variable && buffer.domain == Domain::Host;
      }
  return copied;
}

}  // namespace

BoundProgram::BoundProgram(std::shared_ptr<const Program> program, Runtime& runtime,
                           std::vector<const StepParams*> params, std::vector<const WaitContext*> waits,
                           std::vector<StreamRef> streams, const BoundProgram* constants_of)
    : program_(std::move(program)),
      slots_(params.size()),
      device_(device_for(*program_, runtime)),
      streams_(std::move(streams)) {
  if (device_) device_->make_current();
  arena_ = allocate(Domain::Host, program_->stats.arena_bytes, "arena");
  const std::vector<char> copied = copied_variables(*program_);
  for (const ProgramVariable& variable : program_->variables) {
    VariableStore& store = runtime.variables();
    const Domain domain = program_->buffers[static_cast<std::size_t>(variable.buffer)].domain;
    try {
      variables_.push_back(variable.members.empty()
                               ? store.get_or_create(variable.name, variable.dtype, variable.shape, domain,
                                                     copied[static_cast<std::size_t>(variable.buffer)] != 0)
                               : store.get_or_create_slab(variable.name, variable.dtype, variable.shape,
                                                          variable.members, domain));
    } catch (const OutOfMemory& error) {
      throw OutOfMemory("variable '" + variable.name + "': " + error.message());
    }
  }
  prepare_kernels(runtime);
  allocate_slots();
  if (device_) {
    device_arena_ = allocate(Domain::Device, program_->stats.device_arena_bytes, "arena");
    allocate_constants(constants_of);
    allocate_device_slots();
  }
  bind_arguments(params, waits);
}

BoundProgram::Block BoundProgram::allocate(Domain domain, std::uint64_t bytes,
                                           const std::string& purpose) const {
  if (domain == Domain::Device) return device_->allocate(bytes, purpose);
  if (device_) return device_->allocate_pinned(bytes, purpose);
  try {
    return allocate_aligned(std::max<std::uint64_t>(bytes, 1));
  } catch (const OutOfMemory& error) {
    throw OutOfMemory(error.message() + " (" + purpose + largest_holder() + ")");
  }
}

std::string BoundProgram::largest_holder() const {
  std::uint64_t most = 0;
  std::string holder;
  for (std::size_t op = 0; op < program_->ops.size(); ++op) {
    std::uint64_t bytes = op < kernels_.size() ? kernels_[op].scratch_bytes : 0;
    for (const Operand& output : program_->ops[op].outputs)
      if (output.buffer >= 0)
        bytes = std::max(bytes, program_->buffers[static_cast<std::size_t>(output.buffer)].bytes);
    if (bytes <= most) continue;
    most = bytes;
    holder =
        "; most of it for " + program_->place(static_cast<int>(op)) + ": " + std::to_string(bytes) + " bytes";
  }
  return holder;
}

void BoundProgram::prepare_kernels(Runtime& runtime) {
  for (const ProgramOp& op : program_->ops) {
    try {
      kernels_.push_back(prepare(op, runtime));
    } catch (const OutOfMemory& error) {
      throw OutOfMemory(program_->place(static_cast<int>(kernels_.size())) + ": " + error.message());
    }
    const PreparedKernel& kernel = kernels_.back();
    if (op.kind != OpKind::Kernel) continue;
    const std::string place = program_->place(static_cast<int>(kernels_.size()) - 1);
    if (!kernel.run == !kernel.run_async)
      throw Internal(place + ": a prepared kernel needs run or run_async, and not both");
    if (kernel.run_async && !op.async)
      throw Internal(place + ": only host ops of lanes other than Compute may complete asynchronously");
  }
}

PreparedKernel BoundProgram::prepare(const ProgramOp& op, Runtime& runtime) const {
  PreparedKernel kernel;
  if (op.kind == OpKind::Copy) {
    const std::uint64_t bytes = program_->buffers[static_cast<std::size_t>(op.outputs[0].buffer)].bytes;
    if (op.domain == Domain::Host)
      kernel.run = [bytes](const KernelArgs& a) { std::memcpy(a.outputs[0], a.inputs[0], bytes); };
    else
      kernel.run = [bytes, device = device_](const KernelArgs& a) {
        device->copy(a.outputs[0], a.inputs[0], bytes, a.stream);
      };
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
    PrepareContext context{
        node, inputs, node.outputs, values, runtime.pool(), runtime.services(), program_->deterministic};
    if (op.domain == Domain::Device) {
      context.accelerator = device_;
      kernel = node.op->cuda(context);
    } else {
      kernel = node.op->cpu(context);
    }
  }
  return kernel;
}

void BoundProgram::allocate_constants(const BoundProgram* shared) {
  std::uint64_t bytes = 0;
  for (const Tensor& constant : program_->constants) {
    constant_offsets_.push_back(bytes);
    bytes += aligned(constant.bytes());
  }
  if (shared) {
    device_constants_ = shared->device_constants_;
    return;
  }
  device_constants_ = allocate(Domain::Device, bytes, "constants");
  for (std::size_t c = 0; c < constant_offsets_.size(); ++c) {
    const Tensor& constant = program_->constants[c];
    if (constant.dtype() == DType::String) continue;  // no device op reads it
    device_->copy_now(device_constants_.get() + constant_offsets_[c], constant.raw(), constant.bytes());
  }
}

void BoundProgram::allocate_slots() {
  slot_memory_.resize(slots_);
  for (const ProgramBuffer& buffer : program_->buffers) {
    if (buffer.kind != BufferKind::Slot) continue;
    for (auto& memory : slot_memory_) {
      memory.resize(std::max(memory.size(), static_cast<std::size_t>(buffer.index) + 1));
      if (buffer.domain == Domain::Device) continue;
      Block block = allocate(Domain::Host, buffer.bytes, "slot");
      std::fill_n(block.get(), buffer.bytes, std::byte{0});
      memory[static_cast<std::size_t>(buffer.index)] = std::move(block);
    }
  }
}

bool BoundProgram::is_fetched(int buffer) const {
  return std::any_of(program_->fetches.begin(), program_->fetches.end(),
                     [&](const ProgramFetch& fetch) { return fetch.buffer == buffer; });
}

void BoundProgram::allocate_device_slots() {
  const auto& buffers = program_->buffers;
  feed_offsets_.assign(program_->feeds.size(), kNoOffset);
  for (const ProgramOp& op : program_->ops) {
    if (op.domain != Domain::Device) continue;
    for (const Operand& in : op.inputs)
      if (in.buffer >= 0 && buffers[static_cast<std::size_t>(in.buffer)].kind == BufferKind::Feed)
        device_feeds_.push_back(static_cast<std::size_t>(buffers[static_cast<std::size_t>(in.buffer)].index));
  }
  // As a batch has them, so that what lies side by side there is one copy.
  std::sort(device_feeds_.begin(), device_feeds_.end());
  device_feeds_.erase(std::unique(device_feeds_.begin(), device_feeds_.end()), device_feeds_.end());
  input_bytes_ = kDeviceAlignment;
  for (const std::size_t feed : device_feeds_) {
    feed_offsets_[feed] = input_bytes_;
    input_bytes_ += aligned(buffers[static_cast<std::size_t>(program_->feeds[feed].buffer)].bytes);
  }
  std::uint64_t bytes = kDeviceAlignment;
  for (const bool fetched : {true, false}) {
    for (std::size_t b = 0; b < buffers.size(); ++b) {
      const ProgramBuffer& buffer = buffers[b];
      if (buffer.kind != BufferKind::Slot) continue;
      slot_offsets_.resize(std::max(slot_offsets_.size(), static_cast<std::size_t>(buffer.index) + 1));
      if (buffer.domain != Domain::Device || is_fetched(static_cast<int>(b)) != fetched) continue;
      slot_offsets_[static_cast<std::size_t>(buffer.index)] = bytes;
      bytes += aligned(buffer.bytes);
    }
    if (fetched) output_bytes_ = bytes;
  }
  input_copies_.assign(slots_, CopyList(kDeviceAlignment));
  for (std::size_t slot = 0; slot < slots_; ++slot) {
    inputs_.push_back({allocate(Domain::Device, input_bytes_, "staged input"),
                       allocate(Domain::Host, input_bytes_, "staged input")});
    outputs_.push_back(
        {allocate(Domain::Device, bytes, "slots"), allocate(Domain::Host, output_bytes_, "slots")});
  }
}

void* BoundProgram::address(int slot, int buffer, Domain user) const {
  if (buffer < 0) return nullptr;
  const ProgramBuffer& b = program_->buffers[static_cast<std::size_t>(buffer)];
  const auto index = static_cast<std::size_t>(b.index), at = static_cast<std::size_t>(slot);
  // Kernels take inputs as void* for the sake of variables; constants are not written.
  switch (b.kind) {
    case BufferKind::Arena:
      if (b.domain == Domain::Host) return arena_.get() + b.offset;
      return device_arena_.get() + (b.offset - program_->stats.arena_bytes);
    case BufferKind::Variable:
      return const_cast<std::byte*>(variables_[index].raw());
    case BufferKind::Slot:
      if (b.domain == Domain::Host) return slot_memory_[at][index].get();
      return outputs_[at].device.get() + slot_offsets_[index];
    case BufferKind::Constant:
      if (user == Domain::Host) return const_cast<std::byte*>(program_->constants[index].raw());
      return device_constants_.get() + constant_offsets_[index];
    case BufferKind::Feed:
      if (user == Domain::Host) return nullptr;  // the step's
      return inputs_[at].device.get() + feed_offsets_[index];
  }
  return nullptr;
}

void BoundProgram::allocate_scratch() {
  // The synchronous ops of a stream run one after the other, also over steps, and share its scratch memory.
  std::vector<std::size_t> stream_scratch(program_->streams.size(), 0);
  for (std::size_t op = 0; op < program_->ops.size(); ++op) {
    const ProgramOp& p = program_->ops[op];
    auto& bytes = stream_scratch[static_cast<std::size_t>(p.stream)];
    if (!p.async) bytes = std::max(bytes, kernels_[op].scratch_bytes);
  }
  for (std::size_t s = 0; s < program_->streams.size(); ++s) {
    const ProgramStream& stream = program_->streams[s];
    const bool on_device = stream.domain == Domain::Device;
    scratch_.push_back(
        stream_scratch[s] == 0 && on_device
            ? nullptr
            : allocate(stream.domain, stream_scratch[s], "scratch memory of stream " + stream.name));
  }
}

void BoundProgram::bind_arguments(const std::vector<const StepParams*>& params,
                                  const std::vector<const WaitContext*>& waits) {
  allocate_scratch();
  std::size_t pointers = 0;
  for (const ProgramOp& op : program_->ops) pointers += op.inputs.size() + op.outputs.size();
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
              operand.buffer >= 0 && p.domain == Domain::Host &&
              program_->buffers[static_cast<std::size_t>(operand.buffer)].kind == BufferKind::Feed;
          if (is_feed && slot == 0) {
            const int feed = program_->buffers[static_cast<std::size_t>(operand.buffer)].index;
            feed_positions_[static_cast<std::size_t>(feed)].push_back(list.size());
          }
          list.push_back(address(static_cast<int>(slot), operand.buffer, p.domain));
        }
        return first;
      };
      KernelArgs args{};
      args.inputs = add(p.inputs);
      args.outputs = add(p.outputs);
      args.stream = stream(p.stream);
      args.op = static_cast<int>(op);
      if (p.domain == Domain::Device) {
        args.params = reinterpret_cast<const StepParams*>(inputs_[slot].device.get());
        args.status = status_on_device(static_cast<int>(slot));
      } else {
        args.params = params[slot];
        args.wait = waits[slot];
      }
      if (p.async) scratch_.push_back(allocate(Domain::Host, kernels_[op].scratch_bytes, "scratch memory"));
      args.scratch = (p.async ? scratch_.back() : scratch_[static_cast<std::size_t>(p.stream)]).get();
      args_[slot].push_back(args);
    }
  }
}

void BoundProgram::set_feed(int slot, int feed, const void* memory) {
  for (const std::size_t position : feed_positions_[static_cast<std::size_t>(feed)])
    pointers_[static_cast<std::size_t>(slot)][position] = const_cast<void*>(memory);
}

Tensor BoundProgram::fetch(int slot, int fetch, const std::vector<Tensor>& feeds,
                           const std::shared_ptr<std::byte[]>& results) const {
  const ProgramFetch& f = program_->fetches[static_cast<std::size_t>(fetch)];
  const ProgramBuffer& buffer = program_->buffers[static_cast<std::size_t>(f.buffer)];
  const auto index = static_cast<std::size_t>(buffer.index);
  if (buffer.kind == BufferKind::Feed) {
    const Tensor& feed = feeds[index];
    return (feed.domain() == Domain::Host ? feed.clone() : on_host(feed, device_)).reshaped(f.shape);
  }
  if (buffer.kind == BufferKind::Constant) return program_->constants[index].clone().reshaped(f.shape);
  if (results && buffer.domain == Domain::Device) {
    std::byte* place = results.get() + slot_offsets_[index];
    return Tensor(f.dtype, f.shape, std::shared_ptr<std::byte[]>(results, place), Domain::Device);
  }
  Tensor copy(f.dtype, f.shape);
  const void* from = buffer.domain == Domain::Host
                         ? address(slot, f.buffer, Domain::Host)
                         : outputs_[static_cast<std::size_t>(slot)].image.get() + slot_offsets_[index];
  if (copy.bytes() != 0) std::memcpy(copy.raw(), from, copy.bytes());
  return copy;
}

const std::vector<MemoryCopy>& BoundProgram::stage_inputs(int slot, const StepParams& params,
                                                          std::uint64_t number,
                                                          const std::vector<Tensor>& feeds) {
  const Mirrored& inputs = inputs_[static_cast<std::size_t>(slot)];
  std::byte* image = inputs.image.get();
  std::memcpy(image, &params, sizeof(params));
  std::memcpy(image + kNumberOffset, &number, sizeof(number));
  CopyList& list = input_copies_[static_cast<std::size_t>(slot)];
  list.clear();
  std::uint64_t begin = 0;  // of the part of the image that is not among the copies yet
  const auto add_image = [&](std::uint64_t end) {
    if (begin < end) list.add({inputs.device.get() + begin, image + begin, end - begin});
  };
  for (const std::size_t f : device_feeds_) {
    const Tensor& feed = feeds[f];
    if (feed.bytes() == 0) continue;
    const std::uint64_t offset = feed_offsets_[f];
    if (feed.domain() == Domain::Host && !device_->is_pinned(feed.raw(), feed.bytes())) {
      std::memcpy(image + offset, feed.raw(), feed.bytes());
      continue;
    }
    add_image(offset);
    list.add(inputs.device.get() + offset, feed);
    begin = offset + aligned(feed.bytes());
  }
  add_image(input_bytes_);
  return list.copies();
}

std::array<MemoryCopy, 2> BoundProgram::copies_of_outputs(int slot,
                                                          const std::shared_ptr<std::byte[]>& results) const {
  const Mirrored& outputs = outputs_[static_cast<std::size_t>(slot)];
  if (!results) return {MemoryCopy{outputs.image.get(), outputs.device.get(), output_bytes_}, MemoryCopy{}};
  // Values keep their places behind the status.
  return {MemoryCopy{outputs.image.get(), outputs.device.get(), kDeviceAlignment},
          MemoryCopy{results.get() + kDeviceAlignment, outputs.device.get() + kDeviceAlignment,
                     output_bytes_ - kDeviceAlignment}};
}

const std::uint64_t* BoundProgram::number_on_device(int slot) const {
  return reinterpret_cast<const std::uint64_t*>(inputs_[static_cast<std::size_t>(slot)].device.get() +
                                                kNumberOffset);
}

StepStatus* BoundProgram::status_on_device(int slot) const {
  return reinterpret_cast<StepStatus*>(outputs_[static_cast<std::size_t>(slot)].device.get());
}

const StepStatus& BoundProgram::status(int slot) const {
  return *reinterpret_cast<const StepStatus*>(outputs_[static_cast<std::size_t>(slot)].image.get());
}

}  // namespace braid
