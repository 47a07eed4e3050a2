// Normalisations: batch, layer, instance, group, root mean square, local response.
#include <limits>

#include "base/error.h"
#include "engine/import/onnx/node.h"
#include "engine/import/onnx/parameters.h"

namespace braid::onnx {
namespace {

/// A vector of channels for axis 1 of a tensor of that rank.
Val for_channels(Val vector, int rank) {
  Ints shape(static_cast<std::size_t>(std::max(rank, 2)), 1);
  shape[1] = -1;
  return rank < 2 ? vector : reshape(vector, shape);
}

struct Moments {
  Val mean, variance;
};

Moments moments(Val x, const Ints& axes) {
  const Val mean = reduce("Mean", x, axes, true);
  return {mean, reduce("Mean", tf("Square", {x - mean}), axes, true)};
}

Ints all_but_channels(int rank) {
  Ints axes = all_axes(rank);
  if (rank < 2) throw InvalidArgument("its input has no channels");
  axes.erase(axes.begin() + 1);
  return axes;
}

/// A running statistic, input 2 + `output`, with the batch's.
void blend(OnnxNode& n, int output, Val fresh) {
  const Val old = n.in(2 + output);
  const double momentum = n.f("momentum", 0.9);
  const Val next = old * momentum + cast(fresh, old.dtype()) * (1 - momentum);
  n.out(output, next);
  n.out(2 + output, tf("Identity", {fresh}));  // up to operator set 13 the batch's, too
  n.around.keep_statistic(n.proto().input(2 + output), next);
}

/// Whether the node, which trains, is for inference here. Statistics that nobody keeps stay the batch's.
bool infers(OnnxNode& n) {
  const std::string &mean = n.proto().input(3), &variance = n.proto().input(4);
  return n.around.found_training() && n.around.keep_statistic(mean, {}) &&
         n.around.keep_statistic(variance, {});
}

/// With the statistics of the batch, as the node that has kernels for it: of images [rows, channels, 1,
/// places]; volumes are images whose rows of pixels are those of all planes.
void batch_statistics(OnnxNode& n, double epsilon) {
  const Val x = n.in(0);
  const int rank = x.rank();
  const bool is_rows = rank == 2;  // channels are last
  const Val one = x.made_by().number(1, DType::Int64),
            nothing = x.made_by().constant(Tensor(DType::Float32, Shape{0}));
  Val image = x;
  if (is_rows) image = reshape(x, std::vector<Val>{size_of(x, 0), one, one, size_of(x, 1)});
  if (rank == 3) image = reshape(x, std::vector<Val>{size_of(x, 0), size_of(x, 1), one, size_of(x, 2)});
  if (rank == 5)
    image = reshape(
        x, std::vector<Val>{size_of(x, 0), size_of(x, 1), size_of(x, 2) * size_of(x, 3), size_of(x, 4)});
  const Val made = tf("FusedBatchNormV3", {image, n.in(1), n.in(2), nothing, nothing},
                      {{"epsilon", epsilon},
                       {"is_training", true},
                       {"data_format", is_rows ? "NHWC" : "NCHW"},
                       {"exponential_avg_factor", 1.0}});
  blend(n, 1, made.at(1));
  // The node's variance is of a sample, ONNX's of all there is.
  const Val count = cast(tf("Size", {x}, {{"out_type", DType::Int64}}), DType::Float32) /
                    cast(size_of(x, 1), DType::Float32);
  blend(n, 2, made.at(2) * ((count - 1) / count));
  std::vector<Val> sizes;
  for (int axis = 0; axis < rank; ++axis) sizes.push_back(size_of(x, axis));
  n.out(0, rank == 4 ? made : reshape(made, sizes));
}

void batch_normalization(OnnxNode& n) {
  const Val x = n.in(0);
  const double epsilon = n.f("epsilon", 1e-5);
  const int rank = x.rank();
  n.in(4);  // it has all inputs
  const bool training = normalises_by_batch(n.proto(), n.opset) && !infers(n);
  if (!training)
    for (int i = 1; i < n.outputs(); ++i) n.out(i, tf("Identity", {n.in(i % 2 == 1 ? 3 : 4)}));
  if (!training && rank == 4 && x.dtype() == DType::Float32 && n.in(1).dtype() == DType::Float32) {
    return n.out(0, tf("FusedBatchNormV3", {x, n.in(1), n.in(2), n.in(3), n.in(4)},
                       {{"epsilon", epsilon}, {"is_training", false}, {"data_format", "NCHW"}}));
  }
  if (training && rank >= 2 && rank <= 5 && x.dtype() == DType::Float32 && n.in(1).dtype() == DType::Float32)
    return batch_statistics(n, epsilon);
  const auto channels = [&](int i) { return for_channels(cast(n.in(i), x.dtype()), rank); };
  Val mean = channels(3), variance = channels(4);
  if (training) {
    const Moments m = moments(x, all_but_channels(rank));
    mean = m.mean;
    variance = m.variance;
    blend(n, 1, reshape(mean, Ints{-1}));
    blend(n, 2, reshape(variance, Ints{-1}));
  }
  n.out(0, (x - mean) * (tf("Rsqrt", {variance + epsilon}) * channels(1)) + channels(2));
}

Ints axes_from(int axis, int rank) { return all_axes(rank, axis); }

void layer_normalization(OnnxNode& n) {
  const Val x = cast(n.in(0), n.in(0).dtype() == DType::Float64 ? DType::Float64 : DType::Float32);
  const int axis = positive_axis(n.i("axis", -1), x.rank());
  const Moments m = moments(x, axes_from(axis, x.rank()));
  const Val inverse_deviation = tf("Rsqrt", {m.variance + n.f("epsilon", 1e-5)});
  Val y = cast((x - m.mean) * inverse_deviation, n.in(0).dtype()) * n.in(1);
  if (n.has(2)) y = y + n.in(2);
  n.out(0, y);
  if (n.wants(1)) n.out(1, tf("Identity", {m.mean}));
  if (n.wants(2)) n.out(2, tf("Identity", {inverse_deviation}));
}

void rms_normalization(OnnxNode& n) {
  const Val x = cast(n.in(0), n.in(0).dtype() == DType::Float64 ? DType::Float64 : DType::Float32);
  const int axis = positive_axis(n.i("axis", -1), x.rank());
  const Val mean = reduce("Mean", tf("Square", {x}), axes_from(axis, x.rank()), true);
  n.out(0, cast(x * tf("Rsqrt", {mean + n.f("epsilon", 1e-5)}), n.in(1).dtype()) * n.in(1));
}

void instance_normalization(OnnxNode& n) {
  const Val x = n.in(0);
  const int rank = x.rank();
  const Moments m = moments(x, axes_from(2, rank));
  n.out(0, (x - m.mean) * tf("Rsqrt", {m.variance + n.f("epsilon", 1e-5)}) * for_channels(n.in(1), rank) +
               for_channels(n.in(2), rank));
}

void group_normalization(OnnxNode& n) {
  const Val x = n.in(0);
  const int rank = x.rank();
  const std::int64_t groups = n.i("num_groups", 1);
  const Val shape = shape_of(x);
  const Val grouped = reshape(x, concat({slice(shape, 0, 0, 1), n.b.ints({groups, -1})}, 0));
  const Moments m = moments(grouped, {2});
  const Val normal = (grouped - m.mean) * tf("Rsqrt", {m.variance + n.f("epsilon", 1e-5)});
  // Up to operator set 20 scale and bias are those of groups.
  if (n.opset < 21)
    return n.out(
        0, reshape(normal * reshape(n.in(1), Ints{1, -1, 1}) + reshape(n.in(2), Ints{1, -1, 1}), shape));
  n.out(0, reshape(normal, shape) * for_channels(n.in(1), rank) + for_channels(n.in(2), rank));
}

void mean_variance_normalization(OnnxNode& n) {
  const Val x = n.in(0);
  const Moments m = moments(x, n.is("axes", {0, 2, 3}));
  n.out(0, (x - m.mean) / (tf("Sqrt", {m.variance}) + 1e-9));
}

/// x / (bias + alpha / size * sum of squares over `size` neighbouring channels) ^ beta.
void local_response_normalization(OnnxNode& n) {
  const Val x = n.in(0);
  const std::int64_t size = n.positive("size", 1), before = (size - 1) / 2;
  check_unrolled(size, "channels");
  Ints front(static_cast<std::size_t>(x.rank()), 0), back = front;
  front[1] = before;
  back[1] = size - 1 - before;
  const Val squares = pad(tf("Square", {x}), front, back, like(0, x));
  const std::int64_t channels = x.static_dim(1);
  Val sum = slice(squares, 1, 0, channels);
  for (std::int64_t i = 1; i < size; ++i) sum = sum + slice(squares, 1, i, channels + i);
  const Val base = sum * (n.f("alpha", 1e-4) / static_cast<double>(size)) + n.f("bias", 1);
  n.out(0, x / tf("Pow", {base, like(n.f("beta", 0.75), x)}));
}

}  // namespace

void add_norms(Translations& t) {
  t.add("BatchNormalization", batch_normalization);
  t.add("LayerNormalization", layer_normalization);
  t.add("RMSNormalization", rms_normalization);
  t.add("InstanceNormalization", instance_normalization);
  t.add("GroupNormalization", group_normalization);
  t.add("MeanVarianceNormalization", mean_variance_normalization);
  t.add("LRN", local_response_normalization);
}

}  // namespace braid::onnx
