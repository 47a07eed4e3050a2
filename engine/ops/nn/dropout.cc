// braid.Dropout(x): each element is 0 with probability `rate` (attribute), else x / (1 - rate). The mask
// follows from the counter-based stream of attribute mask_name (the node's own name when absent) and the
// step, so the gradient is the same op on dy with the forward node's mask, and nothing is kept between the
// two.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/fusion/rules.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/random_key.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/nn/dropout_mask.h"

namespace braid {
namespace {

void infer(InferContext& c) {
  require_floating(c, 0);
  const double rate = c.node().attrs.require<double>("rate");
  if (!(rate >= 0 && rate < 1)) c.fail(fmt::format("attribute rate must be in [0, 1), got {}", rate));
  infer_same_as_first(c);
}

PreparedKernel prepare(const PrepareContext& c) {
  const double rate = c.node.attrs.require<double>("rate");
  return with_float("braid.Dropout", c.inputs[0].dtype, [&]<class T>() {
    return parallel_kernel(
        c, c.inputs[0].shape.elements(), kElementGrain,
        [key = RandomKey(c.node.attrs, dropout_mask_name(c.node)), threshold = static_cast<float>(rate),
         scale = static_cast<T>(1 / (1 - rate))](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
          constexpr std::int64_t kPiece = 1024;
          std::array<float, kPiece> uniform;
          const RngKey stream = key.at(*a.params);
          for (std::int64_t i = begin; i < end; i += kPiece) {
            const std::int64_t n = std::min(kPiece, end - i);
            fill_uniform01(stream, static_cast<std::uint64_t>(i),
                           std::span(uniform.data(), static_cast<std::size_t>(n)));
            const T* x = a.in<T>(0) + i;
            T* y = a.out<T>(0) + i;
            for (std::int64_t k = 0; k < n; ++k)
              y[k] = uniform[static_cast<std::size_t>(k)] < threshold ? T{0} : x[k] * scale;
          }
        });
  });
}

bool fused_steps(fusion::StepWriter& w) {
  const DType dtype = w.input_info(0).dtype;
  // What is known would make the whole region look known.
  if (dtype != DType::Float32 || w.known(0)) return false;
  const double rate = w.node().attrs.require<double>("rate");
  const RandomKey key(w.node().attrs, dropout_mask_name(w.node()));
  const int is_dropped = w.apply_full(
      "Less", {w.uniform(stable_hash(key.name()), key.salt()), w.constant(rate, dtype)}, DType::Bool);
  const int scaled = w.apply("Mul", {w.input(0), w.constant(1 / (1 - rate), dtype)});
  w.output(0, w.apply_full("SelectV2", {is_dropped, w.constant(0, dtype), scaled}, dtype));
  return true;
}

void gradient(GradContext& c) {
  AttrMap attrs = c.node().attrs;
  attrs.set("mask_name", dropout_mask_name(c.node()));
  c.set_grad(0, c.op("braid.Dropout", {c.grad()}, std::move(attrs)));
}

}  // namespace

void register_dropout(OpRegistry& registry) {
  registry.add({.name = "braid.Dropout",
                .traits = computes(),
                .min_inputs = 1,
                .max_inputs = 1,
                .infer = infer,
                .gradient = gradient,
                .cost = cost_per_output(20),
                .cpu = prepare,
                .in_place = {{0, 0}},
                .stateful = true,
                .in_files = true});
  fusion::rules().add("braid.Dropout", {.steps = fused_steps, .draws = true});
}

}  // namespace braid
