// Losses, and the optimizer steps of ai.onnx.preview.training as plain arithmetic: they take all state as
// inputs and give all of it back.
#include "base/error.h"
#include "engine/import/onnx/node.h"

namespace braid::onnx {
namespace {

/// log_probabilities [N, C, d...], target [N, d...]; what the reduction attribute says of -weight[t] log
/// p[t].
Val negative_log_likelihood(OnnxNode& n, Val log_probabilities, Val target, Val weight) {
  Builder& b = n.b;
  if (is_floating(target.dtype()))
    throw InvalidArgument(
        "its labels are floats, and those of ONNX are numbers of classes: where they are shares of "
        "classes, export -(labels * logits.log_softmax(1)).sum(1).mean()");
  const DType dtype = log_probabilities.dtype();
  const bool ignores = n.has_attr("ignore_index");
  const Val classes = cast(target, DType::Int64);
  const Val is_ignored =
      tf("Equal", {classes, b.number(static_cast<double>(n.i("ignore_index", 0)), DType::Int64)});
  const Val safe = ignores ? where(is_ignored, b.number(0, DType::Int64), classes) : classes;
  const Val depth = cast(size_of(log_probabilities, 1), DType::Int32);
  // Chosen by comparison: -inf elsewhere must not count.
  const Val chosen = tf("OneHot", {safe, depth, b.number(1, DType::Bool), b.number(0, DType::Bool)},
                        {{"axis", std::int64_t{1}}});
  const Val picked = reduce("Sum", where(chosen, log_probabilities, like(0, log_probabilities)), {1});
  Val factor = weight ? gather(weight, safe, 0) : tf("OnesLike", {picked});
  if (ignores) factor = where(is_ignored, like(0, factor), factor);
  const Val loss = -(picked * factor);
  const std::string reduction = n.s("reduction", "mean");
  const Ints all = all_axes(loss.rank());
  if (reduction == "none") return loss;
  if (reduction == "sum") return reduce("Sum", loss, all);
  if (reduction != "mean") throw InvalidArgument("reduction '" + reduction + "' is not supported");
  if (!weight && !ignores) return reduce("Mean", loss, all);
  return reduce("Sum", loss, all) / reduce("Sum", cast(factor, dtype), all);
}

void negative_log_likelihood_loss(OnnxNode& n) {
  n.out(0, negative_log_likelihood(n, n.in(0), n.in(1), n.has(2) ? n.in(2) : Val()));
}

void softmax_cross_entropy_loss(OnnxNode& n) {
  const Val x = n.in(0);
  const Ints to_last = moving(x.rank(), 1, x.rank() - 1);
  const Val log_probabilities = transpose(tf("LogSoftmax", {transpose(x, to_last)}), inverse(to_last));
  n.out(0, negative_log_likelihood(n, log_probabilities, n.in(1), n.has(2) ? n.in(2) : Val()));
  if (n.wants(1)) n.out(1, tf("Identity", {log_probabilities}));
}

// -------------------------------------------------------------------------------------------------
// optimizers

/// How many tensors a step updates: inputs are R, T, then `states` lists of that many.
int tensors(const OnnxNode& n, int states) {
  const int count = (n.inputs() - 2) / states;
  if (count < 1 || n.inputs() != 2 + count * states) throw InvalidArgument("it has another number of inputs");
  return count;
}

Val decayed(OnnxNode& n, Val gradient, Val x) { return gradient + x * n.f("norm_coefficient", 0); }

void momentum(OnnxNode& n) {
  const int count = tensors(n, 3);
  const Val rate = n.in(0), zero = n.b.number(0, DType::Int64);
  const double alpha = n.f("alpha", 0);
  const bool nesterov = n.s("mode", "standard") == "nesterov";
  for (int i = 0; i < count; ++i) {
    const Val x = n.in(2 + i), v = n.in(2 + 2 * count + i);
    const Val g = decayed(n, n.in(2 + count + i), x);
    const Val beta =
        where(tf("Greater", {cast(n.in(1), DType::Int64), zero}), like(n.f("beta", 0), x), like(1, x));
    const Val fresh = v * alpha + g * beta;
    n.out(i, x - rate * (nesterov ? g + fresh * alpha : fresh));
    n.out(count + i, tf("Identity", {fresh}));
  }
}

void adagrad(OnnxNode& n) {
  const int count = tensors(n, 3);
  const Val rate = n.in(0) / (cast(n.in(1), n.in(0).dtype()) * n.f("decay_factor", 0) + 1.0);
  for (int i = 0; i < count; ++i) {
    const Val x = n.in(2 + i), h = n.in(2 + 2 * count + i);
    const Val g = decayed(n, n.in(2 + count + i), x);
    const Val fresh = h + g * g;
    n.out(i, x - rate * g / (tf("Sqrt", {fresh}) + n.f("epsilon", 0)));
    n.out(count + i, tf("Identity", {fresh}));
  }
}

void adam(OnnxNode& n) {
  const int count = tensors(n, 4);
  const double alpha = n.f("alpha", 0.9), beta = n.f("beta", 0.999);
  const Val rate = n.in(0), step = cast(n.in(1), rate.dtype());
  const Val corrected = rate * tf("Sqrt", {1.0 - tf("Pow", {like(beta, rate), step})}) /
                        (1.0 - tf("Pow", {like(alpha, rate), step}));
  const Val rate_now = where(tf("Greater", {step, like(0, step)}), corrected, rate);
  for (int i = 0; i < count; ++i) {
    const Val x = n.in(2 + i), v = n.in(2 + 2 * count + i), h = n.in(2 + 3 * count + i);
    const Val g = decayed(n, n.in(2 + count + i), x);
    const Val first = v * alpha + g * (1 - alpha), second = h * beta + g * g * (1 - beta);
    const Val moved = x - rate_now * first / (tf("Sqrt", {second}) + n.f("epsilon", 1e-6));
    n.out(i, moved * (1 - n.f("norm_coefficient_post", 0)));
    n.out(count + i, tf("Identity", {first}));
    n.out(2 * count + i, tf("Identity", {second}));
  }
}

}  // namespace

void add_losses(Translations& t) {
  t.add("NegativeLogLikelihoodLoss", negative_log_likelihood_loss);
  t.add("SoftmaxCrossEntropyLoss", softmax_cross_entropy_loss);
  t.add("ai.onnx.preview.training:Momentum", momentum);
  t.add("ai.onnx.preview.training:Adagrad", adagrad);
  t.add("ai.onnx.preview.training:Adam", adam);
}

}  // namespace braid::onnx
