#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(bias_add) {
  const auto add = [&](const char* label, Shape value, std::int64_t channels, const char* format,
                       bool gradient = true) {
    table.add("BiasAdd", {.label = label,
                          .inputs = {random_f64(value, 1), random_f64({channels}, 2)},
                          .attrs = {{"data_format", format}},
                          .numeric_gradient = gradient});
    table.add("BiasAddGrad", {.label = label,
                              .inputs = {random_f64(value, 1)},
                              .attrs = {{"data_format", format}},
                              .numeric_gradient = gradient});
  };
  add("matrix", {3, 4}, 4, "NHWC");
  add("images, channels last", {2, 3, 2, 4}, 4, "NHWC");
  add("images, channels first", {2, 4, 3, 2}, 4, "NCHW");
  add("matrix, channels first", {3, 4}, 4, "NCHW");
  add("several blocks", {40, 30, 30, 7}, 7, "NHWC", false);  // one block has the same formula
  add("several blocks, channels first", {40, 7, 30, 30}, 7, "NCHW", false);
  add("no images", {0, 4}, 4, "NHWC");
  add("many rows", {9001, 64}, 64, "NHWC", false);
  add("odd rows and columns", {257, 1031}, 1031, "NHWC", false);
  table.add("BiasAdd", {.label = "int32", .inputs = {i32({1, 2}, {1, 2}), i32({2}, {3, 4})}});
}

BRAID_OP_CASES(softmax) {
  for (const char* op : {"Softmax", "LogSoftmax"}) {
    table.add(op, {.label = "matrix", .inputs = {random_f64({3, 5}, 1, -3, 3)}});
    table.add(op, {.label = "vector", .inputs = {random_f64({4}, 1)}});
    table.add(op, {.label = "rank 3", .inputs = {random_f64({2, 3, 4}, 1)}});
    table.add(op, {.label = "one class", .inputs = {random_f64({3, 1}, 1)}});
    table.add(op, {.label = "large logits", .inputs = {f64({2, 3}, {1000, 1001, 999, -1000, -1000, -999})}});
    table.add(
        op,
        {.label = "long rows", .inputs = {random_f64({3, 20000}, 1)}, .numeric_gradient = false});  // size
    table.add(
        op,
        {.label = "many rows", .inputs = {random_f64({9000, 10}, 1)}, .numeric_gradient = false});  // size
    table.add(
        op, {.label = "wide rows", .inputs = {random_f64({7, 1025}, 1)}, .numeric_gradient = false});  // size
    table.add(op, {.label = "no rows", .inputs = {random_f64({0, 3}, 1)}});
  }
  for (const char* op : {"braid.SoftmaxGrad", "braid.LogSoftmaxGrad"}) {
    table.add(op, {.label = "matrix", .inputs = {random_f64({3, 5}, 1), random_f64({3, 5}, 2)}});
    table.add(op, {.label = "many rows", .inputs = {random_f64({9000, 10}, 1), random_f64({9000, 10}, 2)}});
    table.add(op, {.label = "wide rows", .inputs = {random_f64({7, 1025}, 1), random_f64({7, 1025}, 2)}});
  }
}

BRAID_OP_CASES(cross_entropy) {
  const char* dense = "SoftmaxCrossEntropyWithLogits";
  const char* sparse = "SparseSoftmaxCrossEntropyWithLogits";
  const auto add = [&](const char* op, OpCase c) {
    c.no_gradient_outputs = {1};  // a gradient already
    table.add(op, std::move(c));
  };
  // Rows of labels sum to 1, as the op demands: only then is backprop the gradient.
  const Tensor labels = f64({3, 4}, {0.1, 0.2, 0.3, 0.4, 1, 0, 0, 0, 0.25, 0.25, 0.25, 0.25});
  add(dense, {.label = "distributions", .inputs = {random_f64({3, 4}, 1, -2, 2), labels}});
  add(dense, {.label = "many rows",
              .inputs = {random_f64({5000, 10}, 1, -2, 2), random_f64({5000, 10}, 2, 0, 0.2)},
              .numeric_gradient = false});  // size
  add(dense, {.label = "wide rows",
              .inputs = {random_f64({3, 1500}, 1, -2, 2), random_f64({3, 1500}, 2, 0, 0.001)},
              .numeric_gradient = false});  // size
  add(dense, {.label = "no rows", .inputs = {random_f64({0, 4}, 1), random_f64({0, 4}, 2)}});
  add(sparse, {.label = "int64", .inputs = {random_f64({3, 4}, 1, -2, 2), i64({3}, {0, 3, 1})}});
  add(sparse, {.label = "int32", .inputs = {random_f64({2, 3}, 1, -2, 2), i32({2}, {2, 2})}});
  add(sparse,
      {.label = "large logits", .inputs = {f64({2, 3}, {1000, 0, -1000, 50, 60, 70}), i32({2}, {0, 1})}});
  add(sparse, {.label = "many rows",
               .inputs = {random_f64({5000, 10}, 1, -2, 2), random_i64({5000}, 2, 0, 10)},
               .numeric_gradient = false});  // size
  add(sparse, {.label = "wide rows",
               .inputs = {random_f64({3, 1500}, 1, -2, 2), i32({3}, {0, 1499, 700})},
               .numeric_gradient = false});  // size
  add(sparse, {.label = "no rows", .inputs = {random_f64({0, 4}, 1), i64({0}, {})}});
}

BRAID_OP_CASES(sigmoid_cross_entropy) {
  const char* op = "braid.SigmoidCrossEntropy";
  table.add(op,
            {.label = "soft labels", .inputs = {random_f64({3, 4}, 1, -3, 3), random_f64({3, 4}, 2, 0, 1)}});
  table.add(op,
            {.label = "large logits", .inputs = {f64({4}, {-500, 500, -500, 500}), f64({4}, {0, 1, 1, 0})}});
  table.add(op, {.label = "several blocks",
                 .inputs = {random_f64({90000}, 1, -3, 3), random_f64({90000}, 2, 0, 1)},
                 .numeric_gradient = false});  // size
  const char* grad = "braid.SigmoidCrossEntropyGrad";
  table.add(grad, {.label = "soft labels",
                   .inputs = {random_f64({3, 4}, 1, -3, 3), random_f64({3, 4}, 2, 0, 1),
                              random_f64({3, 4}, 3, -1, 1)}});
  table.add(grad,
            {.label = "large logits",
             .inputs = {f64({4}, {-500, 500, -500, 500}), f64({4}, {0, 1, 1, 0}), f64({4}, {1, 2, 3, 4})}});
  table.add(grad, {.label = "several blocks",
                   .inputs = {random_f64({90001}, 1, -3, 3), random_f64({90001}, 2, 0, 1),
                              random_f64({90001}, 3, -1, 1)}});
}

BRAID_OP_CASES(in_top_k) {
  const Tensor predictions = f32({3, 4}, {0.1F, 0.4F, 0.3F, 0.2F, 0.7F, 0.1F, 0.1F, 0.1F, 1, 2, 3, 4});
  table.add("InTopK",
            {.label = "attribute", .inputs = {predictions, i64({3}, {2, 0, 0})}, .attrs = {{"k", 2}}});
  table.add("InTopKV2", {.label = "int64", .inputs = {predictions, i64({3}, {2, 0, 0}), i64({}, {2})}});
  table.add("InTopKV2", {.label = "wide rows",
                         .inputs = {converted(random_f64({20, 1500}, 1), DType::Float32),
                                    random_i64({20}, 2, 0, 1500), i64({}, {700})}});
  table.add("InTopKV2", {.label = "int32", .inputs = {predictions, i32({3}, {2, 9, -1}), i32({}, {1})}});
}

BRAID_OP_CASES(l2_loss) {
  table.add("L2Loss", {.label = "matrix", .inputs = {random_f64({3, 4}, 1)}});
  table.add("L2Loss", {.label = "scalar", .inputs = {random_f64({}, 1)}});
  table.add("L2Loss", {.label = "parts", .inputs = {random_f64({200, 1001}, 1)}, .numeric_gradient = false});
}

}  // namespace braid::testing
