#include "examples/multistream_training/regression.h"

#include "base/init.h"
#include "engine/builder/graph_builder.h"
#include "proto/graph.pb.h"

namespace braid {

const std::array<float, Regression::kPoints> Regression::kInputs{
    3.3F,   4.4F,   5.5F,    6.71F,  6.93F,  4.168F, 9.779F, 6.182F, 7.59F,
    2.167F, 7.042F, 10.791F, 5.313F, 7.997F, 5.654F, 9.27F,  3.1F};
const std::array<float, Regression::kPoints> Regression::kTruths{
    1.7F,   2.76F,  2.09F,  3.19F, 1.694F, 1.573F, 3.336F, 2.596F, 2.53F,
    1.221F, 2.827F, 3.465F, 1.65F, 2.904F, 2.42F,  2.94F,  1.3F};

Regression make_regression(GraphDef& graph) {
  const Shape shape{static_cast<std::int64_t>(Regression::kPoints), 1};
  const VariableOptions weight{.init = {InitKind::Normal, 0.0F, 1.0F}};
  GraphBuilder b;
  Output left, right;
  {
    const StreamScope stream(b, 0);
    const Output x = b.placeholder("x", DType::Float32, shape);
    const Output w = b.variable("weight_x", Shape{1, 1}, weight), bias = b.variable("bias", Shape{1}, {});
    left = b.bias_add(b.matmul(x, b.read(w)), b.read(bias));
  }
  {
    const StreamScope stream(b, 1);
    const Output y = b.placeholder("y", DType::Float32, shape);
    const Output w = b.variable("weight_y", Shape{1, 1}, weight);
    right = b.matmul(y, b.read(w));
  }
  const Output z = b.placeholder("z", DType::Float32, shape);
  const Output loss = b.reduce_mean(b.op("SquaredDifference", {b.add(left, right), z}));
  graph = b.graph();
  return {loss.name(),
          {{"x", Tensor::from<float>(shape, Regression::kInputs)},
           {"y", Tensor::from<float>(shape, Regression::kInputs)},
           {"z", Tensor::from<float>(shape, Regression::kTruths)}}};
}

}  // namespace braid
