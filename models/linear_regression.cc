// z = w_x x + w_y y + b, the smallest program with two branches. Loss: mean squared error.
//
// Initial values: weights standard normal, as in TensorFlow's examples of linear regression
// (tf.Variable(rng.randn())), the bias zero. The loss is convex, so they only decide how long it takes.
#include "models/common.h"

namespace braid {

ModelGraph build_linear_regression(const ModelConfig& config) {
  constexpr const char* kName = "linear_regression";
  GraphBuilder b;
  const VariableOptions weight{.init = {InitKind::Normal, 0.0F, 1.0F}};
  const RowWeights weights = row_weights(b, config);
  Output left, right;
  Output truth = column_placeholder(b, config, kName, "z", DType::Float32);
  {
    Output x = column_placeholder(b, config, kName, "x", DType::Float32);
    Output w = b.variable("weight_x", Shape{1, 1}, weight);
    Output bias = b.variable("bias", Shape{1}, {});
    left = b.bias_add(b.matmul(x, b.read(w)), b.read(bias));
  }
  {
    Output y = column_placeholder(b, config, kName, "y", DType::Float32);
    Output w = b.variable("weight_y", Shape{1, 1}, weight);
    right = b.matmul(y, b.read(w));
  }
  Output z = b.add(left, right);
  Output loss = mean_squared_loss(b, z, truth, weights);
  return finish_model(b, loss, z, {"x", "y", "z"}, "z", Prediction::Value, weights);
}

}  // namespace braid
