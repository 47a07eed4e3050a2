// Fully connected classifier of images: flatten, hidden layers with ReLU, logits. Loss: mean softmax cross
// entropy.
//
// Initial values are those of Keras' Dense, of which its Fashion-MNIST example is made: Glorot uniform,
// biases zeros.
#include "models/common.h"

namespace braid {

ModelGraph build_mlp(const ModelConfig& config) {
  constexpr const char* kName = "mlp";
  const std::vector<std::int64_t> hidden =
      config.hidden.empty() ? std::vector<std::int64_t>{256, 128} : config.hidden;
  const std::int64_t classes = config.classes ? config.classes : 10;
  GraphBuilder b;
  Output image = column_placeholder(b, config, kName, "image", DType::Float32);
  Output label = column_placeholder(b, config, kName, "label", DType::Int64);
  const RowWeights weights = row_weights(b, config);
  std::int64_t width = row_shape(config, kName, "image").elements();
  Output h = mlp_layers(b, "mlp", b.reshape(image, {-1, width}), width, hidden, config.dropout);
  Output logits = b.dense("logits", h, width, classes, false);
  Output loss = mean_softmax_loss(b, logits, label, classes, weights);
  return finish_model(b, loss, logits, {"image", "label"}, "label", Prediction::Classes, weights);
}

}  // namespace braid
