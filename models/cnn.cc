// A small convolutional classifier: two blocks of 3x3 convolution, ReLU and 2x2 max pooling, one hidden
// layer, logits. Images are [B, H, W, C] (NHWC). `hidden` gives {channels of block 1, channels of block 2,
// width of the hidden layer}.
//
// Initial values are those of Keras' Conv2D and Dense, of which its MNIST example is made: Glorot uniform (a
// kernel's fans are 9 in and 9 out), biases zeros.
#include <cmath>

#include "base/error.h"
#include "models/common.h"

namespace braid {
namespace {

Output conv_block(GraphBuilder& b, const std::string& name, const Output& x, std::int64_t in,
                  std::int64_t out) {
  NameScope scope(b, name);
  const float range = std::sqrt(6.0F / static_cast<float>(9 * (in + out)));  // Glorot uniform
  Output kernel =
      b.read(b.variable("kernel", Shape{3, 3, in, out}, {.init = {InitKind::Uniform, -range, range}}));
  Output bias = b.read(b.variable("bias", Shape{out}, {}));
  const std::vector<std::int64_t> ones{1, 1, 1, 1}, twos{1, 2, 2, 1};
  Output conv =
      b.op("Conv2D", {x, kernel}, {{"strides", ones}, {"padding", "SAME"}, {"data_format", "NHWC"}});
  return b.op("MaxPool", {b.relu(b.bias_add(conv, bias))},
              {{"ksize", twos}, {"strides", twos}, {"padding", "VALID"}, {"data_format", "NHWC"}});
}

}  // namespace

ModelGraph build_cnn(const ModelConfig& config) {
  constexpr const char* kName = "cnn";
  const std::vector<std::int64_t> widths =
      config.hidden.empty() ? std::vector<std::int64_t>{16, 32, 128} : config.hidden;
  if (widths.size() != 3)
    throw InvalidArgument("model 'cnn': hidden takes three widths (two blocks and a layer), got " +
                          std::to_string(widths.size()));
  const std::int64_t classes = config.classes ? config.classes : 10;
  GraphBuilder b;
  Output image = column_placeholder(b, config, kName, "image", DType::Float32);
  Output label = column_placeholder(b, config, kName, "label", DType::Int64);
  const RowWeights weights = row_weights(b, config);
  const Shape& shape = row_shape(config, kName, "image");
  Output h = conv_block(b, "conv0", image, shape[2], widths[0]);
  h = conv_block(b, "conv1", h, widths[0], widths[1]);
  const std::int64_t flat = (shape[0] / 2 / 2) * (shape[1] / 2 / 2) * widths[1];
  h = dropout(b, b.dense("hidden", b.reshape(h, {-1, flat}), flat, widths[2], true), config.dropout);
  Output logits = b.dense("logits", h, widths[2], classes, false);
  Output loss = mean_softmax_loss(b, logits, label, classes, weights);
  return finish_model(b, loss, logits, {"image", "label"}, "label", Prediction::Classes, weights);
}

}  // namespace braid
