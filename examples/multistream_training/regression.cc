#include "examples/multistream_training/regression.h"

#include "models/model.h"
#include "proto/graph.pb.h"

namespace braid {

const std::array<float, Regression::kPoints> Regression::kInputs{
    3.3F,   4.4F,   5.5F,    6.71F,  6.93F,  4.168F, 9.779F, 6.182F, 7.59F,
    2.167F, 7.042F, 10.791F, 5.313F, 7.997F, 5.654F, 9.27F,  3.1F};
const std::array<float, Regression::kPoints> Regression::kTruths{
    1.7F,   2.76F,  2.09F,  3.19F, 1.694F, 1.573F, 3.336F, 2.596F, 2.53F,
    1.221F, 2.827F, 3.465F, 1.65F, 2.904F, 2.42F,  2.94F,  1.3F};

Regression make_regression(GraphDef& graph) {
  ModelConfig config;
  for (const char* column : {"x", "y", "z"}) config.columns[column] = Shape{1};
  ModelGraph model = build_model("linear_regression", config);
  graph = *model.graph;
  Regression regression;
  regression.loss = model.loss;
  const Shape shape{static_cast<std::int64_t>(Regression::kPoints), 1};
  regression.feeds = {{"x", Tensor::from<float>(shape, Regression::kInputs)},
                      {"y", Tensor::from<float>(shape, Regression::kInputs)},
                      {"z", Tensor::from<float>(shape, Regression::kTruths)}};
  return regression;
}

}  // namespace braid
