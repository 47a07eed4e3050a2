// FusedBatchNorm, V2, V3(x, scale, offset, mean, variance) and their gradients, attributes epsilon,
// is_training, exponential_avg_factor f, data_format; TensorFlow's outputs y, batch_mean, batch_variance,
// reserve_space_1, _2 (and _3, which is empty). Over the n elements of a channel:
//   training:  m, v = mean and biased variance of x;   y = scale (x - m) / sqrt(v + epsilon) + offset
//              batch_mean = (1 - f) mean + f m;  batch_variance = (1 - f) variance + f v n / (n - 1)
//              reserves: m, v
//   inference: y with the mean and variance that are given; all other outputs repeat those
// Gradient, with h = (x - m) / sqrt(v + epsilon): d_offset = sum dy, d_scale = sum dy h,
//   dx = scale / sqrt(v + epsilon) * (training: dy - d_offset / n - h d_scale / n; inference: dy).
// Sums over a channel are made in blocks of rows and added in the order of the blocks, in double.
//
// braid.BatchNormStatistics(x, scale, mean, variance) -> batch_mean, batch_variance, m, v,
// scale / sqrt(v + epsilon): all of the forward pass that is no elementwise op
// (engine/rewrite/batch_norm.cc).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

/// x as [outer, channels, inner]: NHWC has inner 1, NCHW has outer = N.
struct Layout {
  std::int64_t outer = 1, channels = 1, inner = 1;
  std::int64_t grain = 1;  // outer rows of a block

  std::int64_t blocks() const { return (outer + grain - 1) / grain; }
  std::int64_t count() const { return outer * inner; }
};

Layout layout_of(const PrepareContext& c, const Shape& x) {
  constexpr std::int64_t kMaxBlocks = 64;
  Layout l;
  if (c.attr("data_format", std::string("NHWC")) == "NCHW")
    l = {x[0], x[1], x[2] * x[3], 1};
  else
    l = {x[0] * x[1] * x[2], x[3], 1, 1};
  l.grain =
      std::max({row_grain(l.channels * l.inner), (l.outer + kMaxBlocks - 1) / kMaxBlocks, std::int64_t{1}});
  return l;
}

int channel_axis(const InferContext& c) {
  const std::string format = c.attr("data_format", std::string("NHWC"));
  if (format != "NHWC" && format != "NCHW") c.fail("data_format must be NHWC or NCHW, got '" + format + "'");
  return format == "NHWC" ? 3 : 1;
}

/// f(index, channel) for the elements of outer rows [begin, end). Channels that lie side by side are the
/// inner loop, which becomes vectors.
template <class F>
BRAID_VECTOR_CLONES void for_rows(Layout l, std::int64_t begin, std::int64_t end, F f) {
  for (std::int64_t r = begin; r < end; ++r) {
    if (l.inner == 1)
      for (std::int64_t c = 0; c < l.channels; ++c) f(r * l.channels + c, c);
    else
      for (std::int64_t c = 0; c < l.channels; ++c)
        for (std::int64_t i = 0; i < l.inner; ++i) f((r * l.channels + c) * l.inner + i, c);
  }
}

template <class F>
void for_all(ThreadPool& pool, const Layout& l, F f) {
  pool.parallel_range(l.outer, l.grain,
                      [&](std::int64_t begin, std::int64_t end) { for_rows(l, begin, end, f); });
}

/// sums[s * channels + c] = the s-th of kSums sums over channel c. `adder(part)` gives the f of for_rows that
/// adds to `part`, laid out like sums. Blocks have their parts in `scratch`.
template <int kSums, class Adder>
void channel_sums(ThreadPool& pool, const Layout& l, double* scratch, double* sums, Adder adder) {
  const std::int64_t width = kSums * l.channels;
  pool.parallel_for(l.blocks(), [&](std::int64_t b) {
    double* part = scratch + b * width;
    std::fill(part, part + width, 0.0);
    for_rows(l, b * l.grain, std::min(l.outer, (b + 1) * l.grain), adder(part));
  });
  std::fill(sums, sums + width, 0.0);
  for (std::int64_t b = 0; b < l.blocks(); ++b)
    for (std::int64_t k = 0; k < width; ++k) sums[k] += scratch[b * width + k];
}

// What the loops do with an element.

template <class T>
struct AddValue {
  const T* x;
  double* sum;
  BRAID_INLINE void operator()(std::int64_t at, std::int64_t c) const {
    sum[c] += static_cast<double>(x[at]);
  }
};

template <class T>
struct AddSquare {
  const T* x;
  const double* mean;
  double* sum;
  BRAID_INLINE void operator()(std::int64_t at, std::int64_t c) const {
    const double d = static_cast<double>(x[at]) - mean[c];
    sum[c] += d * d;
  }
};

/// y = x slope + shift
template <class T>
struct Scale {
  const T* x;
  const double *slope, *shift;
  T* y;
  BRAID_INLINE void operator()(std::int64_t at, std::int64_t c) const {
    y[at] = static_cast<T>(static_cast<double>(x[at]) * slope[c] + shift[c]);
  }
};

/// Sums of dy and of dy (x - mean).
template <class T>
struct AddGradient {
  const T *dy, *x, *mean;
  double *sum, *centred_sum;
  BRAID_INLINE void operator()(std::int64_t at, std::int64_t c) const {
    const auto g = static_cast<double>(dy[at]);
    sum[c] += g;
    centred_sum[c] += g * (static_cast<double>(x[at]) - static_cast<double>(mean[c]));
  }
};

/// dx = (dy - level - (x - mean) tilt) slope
template <class T>
struct Gradient {
  const T *dy, *x, *mean;
  const double *level, *tilt, *slope;
  T* dx;
  BRAID_INLINE void operator()(std::int64_t at, std::int64_t c) const {
    const double centred = static_cast<double>(x[at]) - static_cast<double>(mean[c]);
    dx[at] = static_cast<T>((static_cast<double>(dy[at]) - level[c] - centred * tilt[c]) * slope[c]);
  }
};

std::size_t scratch_doubles(const Layout& l, int sums, int vectors) {
  return static_cast<std::size_t>((l.blocks() * sums + vectors) * l.channels);
}

void infer_forward(InferContext& c) {
  require_floating(c, 0);
  c.require_rank(0, 4);
  const int axis = channel_axis(c);
  const Shape& x = c.shape(0);
  Shape vector{x.has_rank() ? x[axis] : Shape::kUnknown};
  const bool training = c.attr("is_training", true);
  const double factor = c.attr("exponential_avg_factor", 1.0);
  for (int i = 1; i < 5; ++i) {
    c.require_same_dtype(0, i);
    if (i > 2 && training && factor == 1.0) continue;  // TensorFlow passes empty ones then
    Shape merged;
    if (!merge_shapes(vector, c.shape(i), merged))
      c.fail(
          fmt::format("input {} must have shape {}, got {}", i, vector.to_string(), c.shape(i).to_string()));
    vector = merged;
  }
  c.output(c.dtype(0), x);
  for (int o = 1; o < 5; ++o) c.output(c.dtype(0), vector);
  if (c.node().op->name == "FusedBatchNormV3") c.output(c.dtype(0), Shape{0});
}

/// What the forward pass knows of the channels: inputs, and where TensorFlow's outputs 1 to 4 go.
template <class T>
struct Channels {
  double epsilon, factor;
  bool training;
  const T *x, *scale, *mean, *variance;
  T *batch_mean, *batch_variance, *saved_mean, *saved_variance;

  /// Writes the outputs; leaves means in `means`, and scale / sqrt(variance + epsilon) in `slopes`.
  void run(ThreadPool& pool, const Layout& l, double* means, double* slopes, double* parts) const {
    const auto n = static_cast<double>(l.count());
    if (training) {
      channel_sums<1>(pool, l, parts, means, [&](double* sum) { return AddValue<T>{x, sum}; });
      for (std::int64_t ch = 0; ch < l.channels; ++ch) means[ch] = n == 0 ? 0 : means[ch] / n;
      channel_sums<1>(pool, l, parts, slopes, [&](double* sum) { return AddSquare<T>{x, means, sum}; });
      for (std::int64_t ch = 0; ch < l.channels; ++ch) slopes[ch] = n == 0 ? 0 : slopes[ch] / n;
    } else {
      std::copy_n(mean, l.channels, means);
      std::copy_n(variance, l.channels, slopes);
    }
    const double bessel = n > 1 ? n / (n - 1) : 1;
    for (std::int64_t ch = 0; ch < l.channels; ++ch) {
      const auto blend = [&](const T* old, double fresh) {
        if (!training || factor == 1.0) return static_cast<T>(fresh);
        return static_cast<T>((1 - factor) * static_cast<double>(old[ch]) + factor * fresh);
      };
      batch_mean[ch] = blend(mean, means[ch]);
      batch_variance[ch] = blend(variance, training ? slopes[ch] * bessel : slopes[ch]);
      saved_mean[ch] = static_cast<T>(means[ch]);
      saved_variance[ch] = static_cast<T>(slopes[ch]);
      slopes[ch] = static_cast<double>(scale[ch]) / std::sqrt(slopes[ch] + epsilon);
    }
  }
};

template <class T>
PreparedKernel forward_kernel(const PrepareContext& c) {
  const Layout l = layout_of(c, c.inputs[0].shape);
  const double epsilon = c.attr("epsilon", 1e-4), factor = c.attr("exponential_avg_factor", 1.0);
  const bool training = c.attr("is_training", true);
  PreparedKernel kernel;
  kernel.scratch_bytes = scratch_doubles(l, 1, 2) * sizeof(double);
  kernel.run = [=, pool = &c.pool](const KernelArgs& a) {
    double* means = static_cast<double*>(a.scratch);
    double* slopes = means + l.channels;
    const Channels<T> channels{epsilon,    factor,      training,    a.in<T>(0),  a.in<T>(1), a.in<T>(3),
                               a.in<T>(4), a.out<T>(1), a.out<T>(2), a.out<T>(3), a.out<T>(4)};
    channels.run(*pool, l, means, slopes, slopes + l.channels);
    // y = x * slope + shift, with the shift in the place of the mean.
    for (std::int64_t ch = 0; ch < l.channels; ++ch)
      means[ch] = static_cast<double>(a.in<T>(2)[ch]) - means[ch] * slopes[ch];
    for_all(*pool, l, Scale<T>{a.in<T>(0), slopes, means, a.out<T>(0)});
  };
  return kernel;
}

/// braid.BatchNormStatistics: the same without y.
template <class T>
PreparedKernel statistics_kernel(const PrepareContext& c) {
  const Layout l = layout_of(c, c.inputs[0].shape);
  const double epsilon = c.attr("epsilon", 1e-4), factor = c.attr("exponential_avg_factor", 1.0);
  const bool training = c.attr("is_training", true);
  PreparedKernel kernel;
  kernel.scratch_bytes = scratch_doubles(l, 1, 2) * sizeof(double);
  kernel.run = [=, pool = &c.pool](const KernelArgs& a) {
    double* means = static_cast<double*>(a.scratch);
    double* slopes = means + l.channels;
    const Channels<T> channels{epsilon,    factor,      training,    a.in<T>(0),  a.in<T>(1), a.in<T>(2),
                               a.in<T>(3), a.out<T>(0), a.out<T>(1), a.out<T>(2), a.out<T>(3)};
    channels.run(*pool, l, means, slopes, slopes + l.channels);
    for (std::int64_t ch = 0; ch < l.channels; ++ch) a.out<T>(4)[ch] = static_cast<T>(slopes[ch]);
  };
  return kernel;
}

PreparedKernel prepare_statistics(const PrepareContext& c) {
  return with_float("braid.BatchNormStatistics", c.inputs[0].dtype,
                    [&]<class T>() { return statistics_kernel<T>(c); });
}

void infer_statistics(InferContext& c) {
  require_floating(c, 0);
  c.require_rank(0, 4);
  const int axis = channel_axis(c);
  for (int i = 1; i < 4; ++i) c.require_same_dtype(0, i);
  Shape vector{c.shape(0).has_rank() ? c.shape(0)[axis] : Shape::kUnknown};
  if (!merge_shapes(vector, c.shape(1), vector))
    c.fail(fmt::format("the scale {} does not fit {}", c.shape(1).to_string(), c.shape(0).to_string()));
  for (int o = 0; o < 5; ++o) c.output(c.dtype(0), vector);
}

PreparedKernel prepare_forward(const PrepareContext& c) {
  return with_float("FusedBatchNorm", c.inputs[0].dtype, [&]<class T>() { return forward_kernel<T>(c); });
}

void forward_gradient(GradContext& c) {
  const std::string& name = c.node().op->name;
  std::string grad = "FusedBatchNormGrad" + name.substr(std::string("FusedBatchNorm").size());
  const bool training = c.node().attrs.get("is_training", true);
  std::vector<ValueRef> inputs{c.grad(), c.input(0), c.input(1), training ? c.output(3) : c.input(3),
                               training ? c.output(4) : c.input(4)};
  if (name == "FusedBatchNormV3") inputs.push_back(c.output(5));
  const ValueRef result = c.op(grad, std::move(inputs), c.node().attrs);
  for (int i = 0; i < 3; ++i) c.set_grad(i, ValueRef{result.node, i});
}

void infer_backward(InferContext& c) {
  require_floating(c, 0);
  c.require_rank(0, 4);
  c.require_rank(1, 4);
  const Shape x = merged_shape(c, 0, 1);
  Shape vector;
  if (!merge_shapes(Shape{x.has_rank() ? x[channel_axis(c)] : Shape::kUnknown}, c.shape(2), vector))
    c.fail("scale must have as many elements as there are channels, got " + c.shape(2).to_string());
  c.output(c.dtype(0), x);
  c.output(c.dtype(0), vector);
  c.output(c.dtype(0), vector);
  c.output(c.dtype(0), Shape{});  // TensorFlow's, always 0
  c.output(c.dtype(0), Shape{});
}

template <class T>
PreparedKernel backward_kernel(const PrepareContext& c) {
  const Layout l = layout_of(c, c.inputs[1].shape);
  const double epsilon = c.attr("epsilon", 1e-4);
  const bool training = c.attr("is_training", true);
  PreparedKernel kernel;
  kernel.scratch_bytes = scratch_doubles(l, 2, 3) * sizeof(double);
  kernel.run = [=, pool = &c.pool](const KernelArgs& a) {
    const T* dy = a.in<T>(0);
    const T* x = a.in<T>(1);
    double* sums = static_cast<double*>(a.scratch);  // [2, channels]: of dy, of dy (x - mean)
    double* slope = sums + 2 * l.channels;
    double* parts = slope + l.channels;
    const T* mean = a.in<T>(3);
    channel_sums<2>(*pool, l, parts, sums, [&](double* sum) {
      return AddGradient<T>{dy, x, mean, sum, sum + l.channels};
    });
    const auto n = static_cast<double>(l.count());
    for (std::int64_t ch = 0; ch < l.channels; ++ch) {
      const double v = static_cast<double>(a.in<T>(4)[ch]) + epsilon;
      slope[ch] = static_cast<double>(a.in<T>(2)[ch]) / std::sqrt(v);
      a.out<T>(1)[ch] = static_cast<T>(sums[l.channels + ch] / std::sqrt(v));
      a.out<T>(2)[ch] = static_cast<T>(sums[ch]);
      // Of inference dx = slope dy + 0.
      sums[ch] = training ? sums[ch] / n : 0;
      sums[l.channels + ch] /= v * n;
    }
    for (int o : {3, 4}) *a.out<T>(o) = T{0};
    if (training)
      for_all(*pool, l, Gradient<T>{dy, x, mean, sums, sums + l.channels, slope, a.out<T>(0)});
    else
      for_all(*pool, l, Scale<T>{dy, slope, sums, a.out<T>(0)});
  };
  return kernel;
}

PreparedKernel prepare_backward(const PrepareContext& c) {
  return with_float("FusedBatchNormGrad", c.inputs[0].dtype,
                    [&]<class T>() { return backward_kernel<T>(c); });
}

OpTraits forward_traits(const std::string& version) {
  std::vector<std::string_view> names{"y", "batch_mean", "batch_variance", "reserve_space_1",
                                      "reserve_space_2"};
  if (version == "V3") names.emplace_back("reserve_space_3");
  const OpTraits traits = computes().data_outputs(1).names(std::move(names));
  return version.empty() ? traits : traits.type_attrs({{"T", 0}, {"U", 1}});
}

OpTraits backward_traits(const std::string& version) {
  const OpTraits traits = computes().data_outputs(1);
  return version == "V3" ? traits.names({"x_backprop", "scale_backprop", "offset_backprop", "reserve_space_4",
                                         "reserve_space_5"})
                         : traits.names({"x_backprop", "scale_backprop", "offset_backprop", "reserve_space_3",
                                         "reserve_space_4"});
}

}  // namespace

void register_fused_batch_norm(OpRegistry& registry) {
  for (const std::string version : {"", "V2", "V3"}) {
    registry.add({.name = "FusedBatchNorm" + version,
                  .traits = forward_traits(version),
                  .min_inputs = 5,
                  .max_inputs = 5,
                  .infer = infer_forward,
                  .gradient = forward_gradient,
                  .cost = cost_per_output(8),
                  .cpu = prepare_forward});
    const int inputs = version == "V3" ? 6 : 5;
    registry.add({.name = "FusedBatchNormGrad" + version,
                  .traits = backward_traits(version),
                  .min_inputs = inputs,
                  .max_inputs = inputs,
                  .infer = infer_backward,
                  .no_gradient_reason = "second derivatives of batch normalisation are not supported",
                  .cost = cost_per_output(12),
                  .cpu = prepare_backward});
  }
  registry.add(takes_halves(
      {.name = "braid.BatchNormStatistics",
       .traits = computes().names({"batch_mean", "batch_variance", "saved_mean", "saved_variance", "slope"}),
       .min_inputs = 4,
       .max_inputs = 4,
       .infer = infer_statistics,
       .no_gradient_reason = "a pass makes it after differentiation",
       .cost = cost_per_input(4),
       .cpu = prepare_statistics},
      {.kind = HalfKind::Follower, .inputs = {0}}));
}

}  // namespace braid
