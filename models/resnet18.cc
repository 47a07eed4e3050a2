// ResNet-18 (He et al. 2016) for small images: a 3x3 stem without pooling, four stages of two basic blocks,
// the mean over the image, logits. Convolutions have no bias; FusedBatchNormV3 follows each. Training
// normalises with the batch's statistics and moves the stored ones towards them by a tenth a step; inference
// uses the stored ones. Images are [B, H, W, C] (NHWC). `hidden` gives the four stages' widths.
//
// Initial values: convolutions He normal over the inputs, deviation sqrt(2 / (k k in)), as in the paper (its
// reference 13); scales ones, offsets zeros; logits Glorot uniform with biases of zeros, as in Keras' ResNet.
#include <cmath>

#include "base/error.h"
#include "models/common.h"
#include "proto/graph.pb.h"

namespace braid {
namespace {

constexpr double kNewStatistics = 0.1;  // their share in the stored ones

class ResNet {
 public:
  ResNet(GraphBuilder& builder, bool training) : b_(builder), training_(training) {}

  /// Names of the nodes that store the statistics.
  const std::vector<std::string>& updates() const { return updates_; }

  Output stem(const Output& x, std::int64_t in, std::int64_t out) {
    const NameScope scope(b_, "stem");
    return b_.relu(normalised_conv("conv", x, 3, in, out, 1));
  }

  /// relu(BN(conv(relu(BN(conv(x))))) + x), where x is projected when its shape changes.
  Output block(const std::string& name, const Output& x, std::int64_t in, std::int64_t out,
               std::int64_t stride) {
    const NameScope scope(b_, name);
    const Output first = b_.relu(normalised_conv("conv0", x, 3, in, out, stride));
    const Output second = normalised_conv("conv1", first, 3, out, out, 1);
    const bool same = in == out && stride == 1;
    return b_.relu(b_.add(second, same ? x : normalised_conv("project", x, 1, in, out, stride)));
  }

 private:
  Output normalised_conv(const std::string& name, const Output& x, std::int64_t size, std::int64_t in,
                         std::int64_t out, std::int64_t stride) {
    const NameScope scope(b_, name);
    const InitSpec he_normal = normal_init(std::sqrt(2.0 / static_cast<double>(size * size * in)));
    const Output kernel = b_.read(b_.variable("kernel", Shape{size, size, in, out}, {.init = he_normal}));
    const std::vector<std::int64_t> strides{1, stride, stride, 1};
    return batch_norm(
        b_.op("Conv2D", {x, kernel}, {{"strides", strides}, {"padding", "SAME"}, {"data_format", "NHWC"}}),
        out);
  }

  Output batch_norm(const Output& x, std::int64_t channels) {
    const Shape vector{channels};
    const InitSpec ones{InitKind::Constant, 1.0F, 0.0F};
    const Output scale = b_.read(b_.variable("scale", vector, {.init = ones}));
    const Output offset = b_.read(b_.variable("offset", vector, {}));
    const Output mean = b_.variable("mean", vector, {.trainable = false});
    const Output variance = b_.variable("variance", vector, {.init = ones, .trainable = false});
    const Output y = b_.op("FusedBatchNormV3", {x, scale, offset, b_.read(mean), b_.read(variance)},
                           {{"epsilon", 1e-5},
                            {"is_training", training_},
                            {"exponential_avg_factor", training_ ? kNewStatistics : 1.0},
                            {"data_format", "NHWC"}},
                           "norm");
    if (training_) {
      store(mean, {y.node, 1});
      store(variance, {y.node, 2});
    }
    return y;
  }

  void store(const Output& variable, const Output& value) {
    updates_.push_back(b_.op("AssignVariableOp", {variable, value}, {{"dtype", DType::Float32}}).node);
  }

  GraphBuilder& b_;
  bool training_;
  std::vector<std::string> updates_;
};

ModelGraph build(const ModelConfig& config, const std::vector<std::int64_t>& widths, bool training) {
  constexpr const char* kName = "resnet18";
  const std::int64_t classes = config.classes ? config.classes : 10;
  GraphBuilder b;
  const Output image = column_placeholder(b, config, kName, "image", DType::Float32);
  const Output label = column_placeholder(b, config, kName, "label", DType::Int64);
  const RowWeights weights = row_weights(b, config);
  ResNet net(b, training);
  std::int64_t channels = widths[0];
  Output h = net.stem(image, row_shape(config, kName, "image")[2], channels);
  for (std::size_t stage = 0; stage < widths.size(); ++stage)
    for (int i = 0; i < 2; ++i) {
      const std::string name = "stage" + std::to_string(stage) + "_block" + std::to_string(i);
      h = net.block(name, h, channels, widths[stage], stage > 0 && i == 0 ? 2 : 1);
      channels = widths[stage];
    }
  const Output logits = b.dense("logits", b.reduce_mean(h, {1, 2}), channels, classes, false);
  const Output loss = mean_softmax_loss(b, logits, label, classes, weights);
  ModelGraph model = finish_model(b, loss, logits, {"image", "label"}, "label", Prediction::Classes, weights);
  model.updates = net.updates();
  return model;
}

}  // namespace

ModelGraph build_resnet18(const ModelConfig& config) {
  const std::vector<std::int64_t> widths =
      config.hidden.empty() ? std::vector<std::int64_t>{64, 128, 256, 512} : config.hidden;
  if (widths.size() != 4)
    throw InvalidArgument("model 'resnet18': hidden takes the widths of four stages, got " +
                          std::to_string(widths.size()));
  ModelGraph model = build(config, widths, true);
  model.inference = std::move(build(config, widths, false).graph);
  return model;
}

}  // namespace braid
