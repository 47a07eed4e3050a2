// Assert(condition, data...): an error that shows the data unless the condition holds. Print(x, data...): x
// itself; writes attribute message and the data to the standard error stream, in the first `first_n` steps
// only (negative: in all). PrintV2(text): writes the text. Attribute summarize: how many elements of each
// tensor are shown.
#include <fmt/format.h>

#include <cstdio>
#include <cstring>

#include "engine/ops/common/format_tensor.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

/// The inputs from `first` on, each in brackets.
class Shown {
 public:
  Shown(const PrepareContext& c, std::size_t first)
      : first_(first), summarize_(c.attr("summarize", std::int64_t{3})) {
    for (std::size_t i = first; i < c.inputs.size(); ++i) {
      if (c.inputs[i].dtype != DType::String && dtype_size(c.inputs[i].dtype) == 0)
        c.fail("does not show " + std::string(dtype_name(c.inputs[i].dtype)));
      tensors_.emplace_back(c.inputs[i].dtype, c.inputs[i].shape.elements());
    }
  }

  std::string text(const KernelArgs& a) const {
    std::string text;
    for (std::size_t i = 0; i < tensors_.size(); ++i)
      text += fmt::format(
          "[{}]", format_elements(tensors_[i].first, a.inputs[first_ + i], tensors_[i].second, summarize_));
    return text;
  }

 private:
  std::size_t first_;
  std::int64_t summarize_;
  std::vector<std::pair<DType, std::int64_t>> tensors_;
};

void infer_assert(InferContext& c) {
  require_dtype(c, 0, {DType::Bool});
  c.require_rank(0, 0);
}

PreparedKernel prepare_assert(const PrepareContext& c) {
  return serial_kernel([shown = Shown(c, 1), place = place_of(c.node)](const KernelArgs& a) {
    if (!*a.in<bool>(0)) throw InvalidArgument(place + ": assertion failed: " + shown.text(a));
  });
}

PreparedKernel prepare_print(const PrepareContext& c) {
  const std::size_t bytes =
      static_cast<std::size_t>(c.outputs[0].shape.elements()) * dtype_size(c.outputs[0].dtype);
  return serial_kernel([shown = Shown(c, 1), bytes, message = c.attr("message", std::string()),
                        first_n = c.attr("first_n", std::int64_t{-1})](const KernelArgs& a) {
    if (first_n < 0 || a.params->step < static_cast<std::uint64_t>(first_n))
      std::fputs(fmt::format("{}{}\n", message, shown.text(a)).c_str(), stderr);
    if (bytes != 0 && a.outputs[0] != a.inputs[0]) std::memcpy(a.outputs[0], a.inputs[0], bytes);
  });
}

void infer_print_v2(InferContext& c) {
  require_dtype(c, 0, {DType::String});
  c.require_rank(0, 0);
}

PreparedKernel prepare_print_v2(const PrepareContext& c) {
  return serial_kernel([end = c.attr("end", std::string("\n"))](const KernelArgs& a) {
    std::fputs(fmt::format("{}{}", format_elements(DType::String, a.inputs[0], 1, 1), end).c_str(), stderr);
  });
}

}  // namespace

void register_print(OpRegistry& registry) {
  registry.add({.name = "Assert",
                .traits = updates(),
                .min_inputs = 1,
                .max_inputs = -1,
                .infer = infer_assert,
                .no_gradient_reason = "it has no outputs",
                .cpu = prepare_assert,
                .side_effect = true});
  registry.add({.name = "Print",
                .traits = computes(),
                .min_inputs = 1,
                .max_inputs = -1,
                .infer = infer_same_as_first,
                .gradient = [](GradContext& c) { c.set_grad(0, c.grad()); },
                .cpu = prepare_print,
                .in_place = {{0, 0}},
                .stateful = true,
                .stands_for = 0});
  registry.add({.name = "PrintV2",
                .traits = updates(),
                .min_inputs = 1,
                .max_inputs = 1,
                .infer = infer_print_v2,
                .no_gradient_reason = "it has no outputs",
                .cpu = prepare_print_v2,
                .side_effect = true});
}

}  // namespace braid
