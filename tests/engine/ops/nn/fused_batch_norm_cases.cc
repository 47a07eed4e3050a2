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
  for (const bool training : {false, true})
    for (const bool nchw : {false, true})
      table.add("braid.BatchNormStatistics",
                {.label = std::string(training ? "training" : "inference") + (nchw ? ", NCHW" : ""),
                 .inputs = {nchw ? random_f64({2, 3, 2, 3}, 1) : x, scale, mean, variance},
                 .attrs = {{"is_training", training},
                           {"exponential_avg_factor", training ? 0.25 : 1.0},
                           {"data_format", nchw ? "NCHW" : "NHWC"}},
                 .numeric_gradient = false});  // it has none
  // Packs of channels, several blocks, and sums that take more than a warp's parts; a mean far from zero.
  for (const std::int64_t channels : {4, 64, 130}) {
    const Tensor images = random_f64({20, 16, 16, channels}, 9, 7, 9);
    const Tensor vector = random_f64({channels}, 10, 0.5, 1.5);
    const std::string label = std::to_string(channels) + " channels";
    table.add("FusedBatchNormV3",
              {.label = label, .inputs = {images, vector, vector, none, none}, .numeric_gradient = false});
    table.add("FusedBatchNormGradV3", {.label = label,
                                       .inputs = {random_f64({20, 16, 16, channels}, 11), images, vector,
                                                  random_f64({channels}, 12, 7.9, 8.1), vector, none},
                                       .numeric_gradient = false,
                                       .float32_tolerance = 1e-4});
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
