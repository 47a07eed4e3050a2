#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(fused_batch_norm) {
  const Tensor x = random_f64({3, 2, 2, 3}, 1), dy = random_f64({3, 2, 2, 3}, 2);
  const Tensor scale = random_f64({3}, 3, 0.5, 1.5), offset = random_f64({3}, 4);
  const Tensor mean = random_f64({3}, 5), variance = random_f64({3}, 6, 0.5, 1.5);
  const Tensor none = random_f64({0}, 7);
  for (const std::string version : {"", "V2", "V3"}) {
    const auto add = [&](const std::string& label, const Tensor& images, const Tensor& gradient,
                         bool training, AttrMap attrs) {
      attrs.set("is_training", training);
      attrs.set("epsilon", 0.1);
      // Only y carries a gradient. Running statistics get none, neither do those that inference uses.
      table.add("FusedBatchNorm" + version,
                {.label = label,
                 .inputs = {images, scale, offset, training ? none : mean, training ? none : variance},
                 .attrs = attrs,
                 .no_gradient_inputs = {3, 4},
                 .no_gradient_outputs = {1, 2, 3, 4, 5}});
      OpCase backward{.label = label, .inputs = {gradient, images, scale, mean, variance}, .attrs = attrs};
      if (version == "V3") backward.inputs.push_back(none);
      table.add("FusedBatchNormGrad" + version, backward);
    };
    add("training", x, dy, true, {});
    add("inference", x, dy, false, {});
    add("NCHW", random_f64({2, 3, 2, 3}, 1), random_f64({2, 3, 2, 3}, 2), true, {{"data_format", "NCHW"}});
  }
  const Tensor nothing = random_f64({2, 3, 2, 0}, 1);
  table.add("FusedBatchNorm", {.label = "no channels",
                               .inputs = {nothing, none, none, none, none},
                               .no_gradient_inputs = {3, 4},
                               .no_gradient_outputs = {1, 2, 3, 4}});
  table.add("FusedBatchNormGrad", {.label = "no channels", .inputs = {nothing, nothing, none, none, none}});
  table.add("FusedBatchNormGrad",
            {.label = "no images",
             .inputs = {random_f64({0, 3, 2, 3}, 1), random_f64({0, 3, 2, 3}, 1), scale, mean, variance}});
  table.add("FusedBatchNormV3", {.label = "running statistics",
                                 .inputs = {x, scale, offset, mean, variance},
                                 .attrs = {{"exponential_avg_factor", 0.25}},
                                 .no_gradient_inputs = {3, 4},
                                 .no_gradient_outputs = {1, 2, 3, 4, 5}});
  table.add("FusedBatchNormV3", {.label = "many blocks",
                                 .inputs = {random_f64({20, 16, 16, 12}, 9), random_f64({12}, 10, 0.5, 1.5),
                                            random_f64({12}, 11), none, none},
                                 .numeric_gradient = false});  // too many elements for differences
}

}  // namespace braid::testing
