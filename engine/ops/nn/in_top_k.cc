// InTopKV2(predictions [batch, classes] float32, targets [batch], k) and InTopK (k is an attribute): whether
// fewer than k classes are predicted higher than the target. False where the target is no class, or a
// prediction that had to be looked at is not finite (TensorFlow's rule).
#include <cmath>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

bool in_top_k(const float* row, std::int64_t classes, std::int64_t target, std::int64_t k) {
  if (target < 0 || target >= classes || !std::isfinite(row[target])) return false;
  std::int64_t higher = 0;
  for (std::int64_t j = 0; j < classes && higher < k; ++j) {
    if (!std::isfinite(row[j])) return false;
    if (row[j] > row[target]) ++higher;
  }
  return higher < k;
}

PreparedKernel prepare(const PrepareContext& c) {
  const std::int64_t rows = c.inputs[0].shape[0], classes = c.inputs[0].shape[1];
  const bool has_input = c.inputs.size() > 2;
  const auto fixed = c.attr("k", std::int64_t{0});
  return with_index("InTopKV2", c.inputs[1].dtype, [&]<class I>() {
    return parallel_kernel(
        c, rows, row_grain(classes), [=](const KernelArgs& args, std::int64_t begin, std::int64_t end) {
          const auto k = has_input ? static_cast<std::int64_t>(*args.in<I>(2)) : fixed;
          for (std::int64_t r = begin; r < end; ++r)
            args.out<bool>(0)[r] = in_top_k(args.in<float>(0) + r * classes, classes,
                                            static_cast<std::int64_t>(args.in<I>(1)[r]), k);
        });
  });
}

void infer(InferContext& c) {
  require_dtype(c, 0, {DType::Float32});
  require_index_dtype(c, 1);
  if (c.inputs() > 2) {
    c.require_same_dtype(1, 2);
    c.require_rank(2, 0);
  }
  c.require_rank(0, 2);
  c.require_rank(1, 1);
  const Shape rows{c.shape(0).has_rank() ? c.shape(0)[0] : Shape::kUnknown};
  Shape out;
  if (!merge_shapes(rows, c.shape(1), out)) c.fail("predictions and targets have different batches");
  c.output(DType::Bool, out);
}

}  // namespace

void register_in_top_k(OpRegistry& registry) {
  for (const int inputs : {2, 3}) {
    OpDef def;
    def.name = inputs == 2 ? "InTopK" : "InTopKV2";
    def.traits = computes();
    def.min_inputs = def.max_inputs = inputs;
    def.infer = infer;
    def.no_gradient_reason = "the output is bool";
    def.cost = cost_per_input(1);
    def.cpu = prepare;
    registry.add(std::move(def));
  }
}

}  // namespace braid
