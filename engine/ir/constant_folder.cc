#include "engine/ir/constant_folder.h"

#include <algorithm>
#include <chrono>

#include "base/wait_context.h"
#include "engine/ir/infer.h"
#include "engine/ir/string_ids.h"

namespace braid {

namespace {

bool is_pure(const OpDef& op) {
  return !op.stateful && !op.side_effect && op.lane == Lane::Compute && op.stands_for < 0 &&
         op.further_handles == Access::None &&
         std::all_of(op.handles.begin(), op.handles.end(),
                     [](Access access) { return access == Access::None; });
}

bool inputs_known(const Node& node, std::span<const OutputInfo> inputs,
                  std::span<const Tensor* const> values) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (values[i]) continue;
    if (!reads_shape_only(node, i) || !inputs[i].shape.is_static()) return false;
  }
  return !inputs.empty();
}

std::size_t bytes_of(const OutputInfo& info) {
  return dtype_size(info.dtype) * static_cast<std::size_t>(info.shape.elements());
}

bool has_plain_static_outputs(const Node& node) {
  return std::all_of(node.outputs.begin(), node.outputs.end(), [](const OutputInfo& info) {
    return dtype_size(info.dtype) != 0 && info.shape.is_static();
  });
}

// All outputs as views of known inputs; empty when some output is not one.
std::vector<Tensor> fold_views(const Node& node, std::span<const Tensor* const> values) {
  std::vector<Tensor> outputs(node.outputs.size());
  for (const auto& [output, input] : node.op->views) {
    const auto o = static_cast<std::size_t>(output);
    const Tensor* value = values[static_cast<std::size_t>(input)];
    if (!value || !node.outputs[o].shape.is_static()) return {};
    outputs[o] = Tensor(value->dtype(), node.outputs[o].shape, value->memory());
  }
  const bool complete =
      std::all_of(outputs.begin(), outputs.end(), [](const Tensor& t) { return t.defined(); });
  return complete ? outputs : std::vector<Tensor>{};
}

}  // namespace

std::vector<Tensor> ConstantFolder::fold(const Node& node, std::span<const OutputInfo> inputs,
                                         std::span<const Tensor* const> values) {
  const OpDef& op = *node.op;
  if (node.outputs.empty() || !is_pure(op) || !inputs_known(node, inputs, values)) return {};
  if (!op.views.empty()) return fold_views(node, values);
  if (op.fold) return op.fold(node, values);
  if (op.cpu && moves_strings(node, inputs)) return run_on_ids(node, inputs, values);
  if (!op.cpu || !has_plain_static_outputs(node)) return {};
  std::size_t total = 0;
  for (const OutputInfo& info : node.outputs) total += bytes_of(info);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!values[i]) continue;
    total += values[i]->bytes();
  }
  if (total > max_bytes_) return {};
  return run_kernel(node, inputs, values);
}

std::vector<Tensor> ConstantFolder::run_on_ids(const Node& node, std::span<const OutputInfo> inputs,
                                               std::span<const Tensor* const> values) {
  StringIds ids;
  std::vector<Tensor> numbers(values.size());
  std::vector<OutputInfo> infos(inputs.begin(), inputs.end());
  std::vector<const Tensor*> known(values.begin(), values.end());
  for (std::size_t i = 0; i < infos.size(); ++i) {
    if (infos[i].dtype != DType::String) continue;
    infos[i].dtype = DType::Int64;
    if (!values[i]) continue;
    numbers[i] = ids.ids_of(*values[i]);
    known[i] = &numbers[i];
  }
  Node on_ids = node;
  for (OutputInfo& output : on_ids.outputs)
    if (output.dtype == DType::String) output.dtype = DType::Int64;
  if (!has_plain_static_outputs(on_ids)) return {};
  std::vector<Tensor> outputs = run_kernel(on_ids, infos, known);
  for (std::size_t o = 0; o < outputs.size(); ++o)
    if (node.outputs[o].dtype == DType::String) outputs[o] = ids.strings_of(outputs[o]);
  return outputs;
}

std::vector<Tensor> ConstantFolder::run_kernel(const Node& node, std::span<const OutputInfo> inputs,
                                               std::span<const Tensor* const> values) {
  const PrepareContext context{node, inputs, node.outputs, values, pool_, services_};
  const PreparedKernel kernel = node.op->cpu(context);
  if (!kernel.run) return {};

  std::vector<void*> input_pointers;
  for (const Tensor* value : values) {
    // Kernels take inputs as void* for the sake of variables; they do not write other inputs.
    input_pointers.push_back(value ? const_cast<std::byte*>(value->raw()) : nullptr);
  }
  std::vector<Tensor> outputs;
  std::vector<void*> output_pointers;
  for (const OutputInfo& info : node.outputs) {
    outputs.push_back(Tensor::zeros(info.dtype, info.shape));
    output_pointers.push_back(outputs.back().raw());
  }
  const auto scratch = allocate_aligned(kernel.scratch_bytes);
  const StepParams params;
  const WaitContext wait = WaitContext::with_timeout(std::chrono::seconds(60));
  kernel.run(
      {input_pointers.data(), output_pointers.data(), scratch.get(), &params, &wait, StreamRef::host()});
  return outputs;
}

}  // namespace braid
