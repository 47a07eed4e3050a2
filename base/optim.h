// The update formulas of the optimizers, in one place for the engine's Apply ops and the parameter server's
// tables. Everything works on contiguous float32 runs (a whole variable, a shard, or one row), element by
// element, so splitting a run never changes a bit.
//
//   g' = g * grad_scale                                          (1 / number of workers, or 1 / loss scale)
//   SGD      w -= lr * g'
//   MOMENTUM m = momentum * m + g';  w -= lr * (nesterov ? g' + momentum * m : m)        (TF ApplyMomentum)
//   ADAGRAD  a += g'^2;  w -= lr * g' / sqrt(a)                     (Duchi et al. 2011; TF ApplyAdagrad)
//   ADAM     m += (1-b1)(g'-m);  v += (1-b2)(g'^2-v);  w -= lr_t * m / (sqrt(v) + eps)
//            lr_t = lr * sqrt(1 - b2^t) / (1 - b1^t), t = step + 1
//                                                   (Kingma & Ba 2015, section 2; TF ApplyAdam)
// Weight decay, when not 0, is decoupled: w -= lr * weight_decay * w before the update (Loshchilov & Hutter
// 2019). Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace braid {

/// On the wire and in checkpoints: never renumber.
enum class OptimizerKind : int { Sgd = 1, Momentum = 2, Adagrad = 3, Adam = 4 };

/// What does not change during a job.
struct OptimizerSpec {
  OptimizerKind kind = OptimizerKind::Sgd;
  float momentum = 0.9F;
  bool nesterov = false;
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-7F;
  float initial_accumulator = 0.1F;  // Adagrad's slot starts here
  float weight_decay = 0.0F;
};

/// What changes from step to step; `step` counts from 0.
struct UpdateParams {
  float learning_rate = 0.01F;
  float grad_scale = 1.0F;
  std::uint64_t step = 0;
};

struct SlotSpec {
  std::string_view name;  // "momentum", "accumulator", "m", "v"
  float initial_value;
};

/// The slots of one element under `spec`, in the order in which apply_update takes them (0, 1 or 2).
std::vector<SlotSpec> optimizer_slots(const OptimizerSpec& spec);
std::string_view optimizer_name(OptimizerKind kind);

/// A spec and the parameters of one step, made ready once for the many rows of that step.
struct PreparedUpdate {
  OptimizerKind kind;
  bool nesterov;
  std::size_t slots;
  float learning_rate;
  float adam_learning_rate;  // lr_t
  float grad_scale;
  float decay;  // learning_rate * weight_decay
  float momentum;
  float one_minus_beta1;
  float one_minus_beta2;
  float epsilon;
};
PreparedUpdate prepare_update(const OptimizerSpec& spec, const UpdateParams& params);

/// Updates `weights` in place. `slots[k]` is the run of slot k, as long as `weights`.
/// REQUIRES: no overlap among the runs. Throws: InvalidArgument unless gradient.size() == weights.size() and
/// slots.size() == optimizer_slots(spec).size().
void apply_update(const PreparedUpdate& update, std::span<float> weights, std::span<const float> gradient,
                  std::span<float* const> slots);
void apply_update(const OptimizerSpec& spec, const UpdateParams& params, std::span<float> weights,
                  std::span<const float> gradient, std::span<float* const> slots);

/// Adam's lr_t for a step (see above); other kinds return the plain learning rate.
float effective_learning_rate(const OptimizerSpec& spec, const UpdateParams& params);

}  // namespace braid
