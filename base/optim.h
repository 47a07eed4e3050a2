// The update formulas of the optimizers, in one place for the engine's Apply ops and the parameter server's
// tables. Everything works on contiguous float32 runs (a whole variable, a shard, or one row), element by
// element, so splitting a run never changes a bit.
//
//   g' = g * grad_scale                                          (1 / number of workers, or 1 / loss scale)
//   SGD      w -= lr * g'
//   MOMENTUM m = momentum * m + g';  w -= lr * (nesterov ? g' + momentum * m : m)        (TF ApplyMomentum)
//   ADAGRAD  a += g'^2;  w -= lr * g' / (sqrt(a) + adagrad_epsilon)
//                           (Duchi et al. 2011; TF ApplyAdagrad and, with an epsilon, ApplyAdagradV2)
//            row-wise: one a for all elements of a row, a += the mean of their g'^2 (apply_row_update)
//   ADAM     m += (1-b1)(g'-m);  v += (1-b2)(g'^2-v);  w -= lr_t * m / (sqrt(v) + eps)
//            lr_t = lr * sqrt(1 - b2^t) / (1 - b1^t), t = step + 1
//                                                   (Kingma & Ba 2015, section 2; TF ApplyAdam)
//   FTRL     a' = a + g'^2;  z += g' + 2 l2_shrinkage w - (r(a') - r(a)) / lr * w;  a = a'
//            w = |z| > l1 ? (sign(z) l1 - z) / (r(a') / lr + 2 l2) : 0
//            r(a) = a^-learning_rate_power            (McMahan et al. 2013, algorithm 1; TF ApplyFtrlV2)
//   RMSPROP  s += (1-rho)(g'^2-s);  d = lr * g' / sqrt(s + eps);  w -= d
//                                                   (Hinton 2012, lecture 6e; TF ApplyRMSProp)
//            centered: h += (1-rho)(g'-h), and s - h^2 under the root
//            momentum > 0: m = momentum * m + d;  w -= m
//
// Two kinds have states of other shapes, and ops of their own, which say their formulas:
//   ADAFACTOR  engine/ops/optimizer/adafactor.cc: a second moment by rows and columns
//   ADAM_8BIT  engine/ops/optimizer/adam_8bit.cc: ADAM whose m and v are codes of 8 bits
//
// What surrounds a formula, in this order; each is left out where its number is 0:
//   lr  = learning rate * learning_rate_factor
//   g'  = clip(g', -clip_value, clip_value)
//   g'  = g' + l2 * w + l1 * sign(w), sign(0) = 0; not of FTRL, whose formula has an l1 and an l2 of its own
//   w  -= lr * weight_decay * w, decoupled: g' does not see it (Loshchilov & Hutter 2019);
//                                      with it ADAM is ADAMW
// With skip_nan, all of it is left out for elements whose g' is NaN.
// All of this happens to the elements of an update and to no others: rows of a table that a step does not
// name are neither decayed nor regularised. Thread rule: pure functions.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace braid {

/// On the wire and in checkpoints: never renumber.
enum class OptimizerKind : int {
  Sgd = 1,
  Momentum = 2,
  Adagrad = 3,
  Adam = 4,
  Ftrl = 5,
  RmsProp = 6,
  Adafactor = 7,
  Adam8Bit = 8
};
/// Those that go element by element, with slots like the variable.
inline constexpr OptimizerKind kOptimizerKinds[] = {OptimizerKind::Sgd,     OptimizerKind::Momentum,
                                                    OptimizerKind::Adagrad, OptimizerKind::Adam,
                                                    OptimizerKind::Ftrl,    OptimizerKind::RmsProp};

/// What does not change during a job.
struct OptimizerSpec {
  OptimizerKind kind = OptimizerKind::Sgd;
  float momentum = 0.9F;  // of Momentum; of RmsProp, where 0 needs no slot
  bool nesterov = false;
  bool skip_nan = false;  // elements whose gradient is NaN stay as they are, with their slots
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-7F;
  float initial_accumulator = 0.1F;  // what the first slot of Adagrad, Ftrl, RmsProp begins with
  float weight_decay = 0.0F;
  float rho = 0.9F;  // of RmsProp, likewise below
  bool centered = false;
  float learning_rate_power = -0.5F;  // of Ftrl, at most 0, likewise below
  float l2_shrinkage = 0.0F;
  float l1 = 0.0F;
  float l2 = 0.0F;
  float clip_value = 0.0F;
  float learning_rate_factor = 1.0F;
  float adagrad_epsilon = 0.0F;  // of Adagrad, likewise below
  bool row_wise = false;         // of tables that are updated by rows: the slot has a number a row
  float clip_threshold = 1.0F;   // of Adafactor, likewise below
  float decay_exponent = 0.8F;
  float least_scale = 1e-3F;
  bool scale_by_weights = true;

  auto operator<=>(const OptimizerSpec&) const = default;
};

/// Whether an update goes element by element, so that a part of a variable can be updated alone.
constexpr bool is_elementwise(const OptimizerSpec& spec) { return spec.kind <= OptimizerKind::RmsProp; }
/// One of the first four formulas, with weight decay at most.
constexpr bool is_basic(const OptimizerSpec& spec) {
  return spec.kind <= OptimizerKind::Adam && spec.l1 == 0 && spec.l2 == 0 && spec.clip_value == 0 &&
         !spec.skip_nan;
}
/// w -= lr * g', and nothing else.
constexpr bool is_plain_descent(const OptimizerSpec& spec) {
  return is_basic(spec) && spec.kind == OptimizerKind::Sgd && spec.weight_decay == 0 &&
         spec.learning_rate_factor == 1;
}

/// What changes from step to step; `step` counts from 0.
struct UpdateParams {
  float learning_rate = 0.01F;
  float grad_scale = 1.0F;
  std::uint64_t step = 0;
};

struct SlotSpec {
  std::string_view name;  // "momentum", "accumulator", "m", "v", "linear", "rms", "mean_gradient"
  float initial_value;
};

/// The slots of one element under `spec`, in the order in which apply_update takes them (0 to 3). Throws:
/// InvalidArgument unless is_elementwise(spec).
std::vector<SlotSpec> optimizer_slots(const OptimizerSpec& spec);
std::string_view optimizer_name(OptimizerKind kind);

/// A spec and the parameters of one step, made ready once for the many rows of that step.
struct PreparedUpdate {
  OptimizerKind kind;
  bool nesterov;
  bool basic;  // is_basic()
  bool skip_nan;
  std::size_t slots;
  float learning_rate;
  float adam_learning_rate;  // lr_t
  float grad_scale;
  float decay;  // learning_rate * weight_decay
  float momentum;
  float one_minus_beta1;
  float one_minus_beta2;
  float epsilon;
  float one_minus_rho;
  bool centered;
  float learning_rate_power, l2_shrinkage, l1, l2;  // of Ftrl
  float clip_value, added_l1, added_l2;             // of all kinds
  float adagrad_epsilon;
  bool row_wise;
};
PreparedUpdate prepare_update(const OptimizerSpec& spec, const UpdateParams& params);

/// Updates `weights` in place. `slots[k]` is the run of slot k, as long as `weights`.
/// REQUIRES: no overlap among the runs. Throws: InvalidArgument unless gradient.size() == weights.size() and
/// slots.size() == optimizer_slots(spec).size().
void apply_update(const PreparedUpdate& update, std::span<float> weights, std::span<const float> gradient,
                  std::span<float* const> slots);
void apply_update(const OptimizerSpec& spec, const UpdateParams& params, std::span<float> weights,
                  std::span<const float> gradient, std::span<float* const> slots);

/// Row-wise Adagrad of one row, whose slot is the one number `accumulator`. Throws: InvalidArgument unless
/// gradient.size() == weights.size() and update.row_wise.
void apply_row_update(const PreparedUpdate& update, std::span<float> weights, std::span<const float> gradient,
                      float& accumulator);

/// Adam's lr_t for a step (see above); other kinds return the plain lr.
float effective_learning_rate(const OptimizerSpec& spec, const UpdateParams& params);

}  // namespace braid
