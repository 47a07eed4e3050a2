#include "base/optim.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"

// Compiled with -O3 -fno-math-errno -fno-trapping-math -ffp-contract=off (base/CMakeLists.txt), so that the
// loops become vectors and vector body and scalar remainder round alike.

namespace braid {
namespace {

/// base^n by squaring: only multiplications, so the same on every machine (std::pow's last bit is not).
double power(double base, std::uint64_t n) {
  double result = 1;
  for (; n != 0; n >>= 1, base *= base)
    if (n & 1) result *= base;
  return result;
}

template <bool kDecay>
float decayed(float w, float decay) {
  return kDecay ? w - decay * w
                : w;  // decay == 0 is its own case: w - 0 * w turns -0 into 0 and inf into NaN
}

template <bool kDecay>
void sgd(const PreparedUpdate& u, std::size_t n, float* __restrict w, const float* __restrict g) {
  const float lr = u.learning_rate, scale = u.grad_scale, decay = u.decay;
  for (std::size_t i = 0; i < n; ++i) w[i] = decayed<kDecay>(w[i], decay) - lr * (g[i] * scale);
}

template <bool kDecay>
void momentum(const PreparedUpdate& u, std::size_t n, float* __restrict w, const float* __restrict g,
              float* __restrict m) {
  const float lr = u.learning_rate, scale = u.grad_scale, decay = u.decay, mu = u.momentum;
  for (std::size_t i = 0; i < n; ++i) {
    m[i] = mu * m[i] + g[i] * scale;
    w[i] = decayed<kDecay>(w[i], decay) - lr * m[i];
  }
}

template <bool kDecay>
void nesterov(const PreparedUpdate& u, std::size_t n, float* __restrict w, const float* __restrict g,
              float* __restrict m) {
  const float lr = u.learning_rate, scale = u.grad_scale, decay = u.decay, mu = u.momentum;
  for (std::size_t i = 0; i < n; ++i) {
    const float gs = g[i] * scale;
    m[i] = mu * m[i] + gs;
    w[i] = decayed<kDecay>(w[i], decay) - lr * (gs + mu * m[i]);
  }
}

template <bool kDecay>
void adagrad(const PreparedUpdate& u, std::size_t n, float* __restrict w, const float* __restrict g,
             float* __restrict a) {
  const float lr = u.learning_rate, scale = u.grad_scale, decay = u.decay;
  for (std::size_t i = 0; i < n; ++i) {
    const float gs = g[i] * scale;
    a[i] += gs * gs;
    w[i] = decayed<kDecay>(w[i], decay) - lr * gs / std::sqrt(a[i]);
  }
}

template <bool kDecay>
void adam(const PreparedUpdate& u, std::size_t n, float* __restrict w, const float* __restrict g,
          float* __restrict m, float* __restrict v) {
  const float lr = u.adam_learning_rate, scale = u.grad_scale, decay = u.decay, eps = u.epsilon;
  const float c1 = u.one_minus_beta1, c2 = u.one_minus_beta2;
  for (std::size_t i = 0; i < n; ++i) {
    const float gs = g[i] * scale;
    m[i] += c1 * (gs - m[i]);
    v[i] += c2 * (gs * gs - v[i]);
    w[i] = decayed<kDecay>(w[i], decay) - lr * m[i] / (std::sqrt(v[i]) + eps);
  }
}

template <bool kDecay>
void dispatch(const PreparedUpdate& u, std::size_t n, float* w, const float* g, float* const* slots) {
  switch (u.kind) {
    case OptimizerKind::Sgd:
      return sgd<kDecay>(u, n, w, g);
    case OptimizerKind::Momentum:
      return u.nesterov ? nesterov<kDecay>(u, n, w, g, slots[0]) : momentum<kDecay>(u, n, w, g, slots[0]);
    case OptimizerKind::Adagrad:
      return adagrad<kDecay>(u, n, w, g, slots[0]);
    case OptimizerKind::Adam:
      return adam<kDecay>(u, n, w, g, slots[0], slots[1]);
  }
}

std::size_t slot_count(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::Sgd:
      return 0;
    case OptimizerKind::Momentum:
    case OptimizerKind::Adagrad:
      return 1;
    case OptimizerKind::Adam:
      return 2;
  }
  throw InvalidArgument(fmt::format("[optim] no optimizer has the number {}", static_cast<int>(kind)));
}

}  // namespace

std::string_view optimizer_name(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::Sgd:
      return "SGD";
    case OptimizerKind::Momentum:
      return "MOMENTUM";
    case OptimizerKind::Adagrad:
      return "ADAGRAD";
    case OptimizerKind::Adam:
      return "ADAM";
  }
  return "invalid";
}

std::vector<SlotSpec> optimizer_slots(const OptimizerSpec& spec) {
  switch (spec.kind) {
    case OptimizerKind::Sgd:
      return {};
    case OptimizerKind::Momentum:
      return {{"momentum", 0.0F}};
    case OptimizerKind::Adagrad:
      return {{"accumulator", spec.initial_accumulator}};
    case OptimizerKind::Adam:
      return {{"m", 0.0F}, {"v", 0.0F}};
  }
  throw InvalidArgument(fmt::format("[optim] no optimizer has the number {}", static_cast<int>(spec.kind)));
}

float effective_learning_rate(const OptimizerSpec& spec, const UpdateParams& params) {
  if (spec.kind != OptimizerKind::Adam) return params.learning_rate;
  const std::uint64_t t = params.step + 1;
  return static_cast<float>(params.learning_rate * std::sqrt(1 - power(spec.beta2, t)) /
                            (1 - power(spec.beta1, t)));
}

PreparedUpdate prepare_update(const OptimizerSpec& spec, const UpdateParams& params) {
  return {.kind = spec.kind,
          .nesterov = spec.nesterov,
          .slots = slot_count(spec.kind),
          .learning_rate = params.learning_rate,
          .adam_learning_rate = effective_learning_rate(spec, params),
          .grad_scale = params.grad_scale,
          .decay = params.learning_rate * spec.weight_decay,
          .momentum = spec.momentum,
          .one_minus_beta1 = 1.0F - spec.beta1,
          .one_minus_beta2 = 1.0F - spec.beta2,
          .epsilon = spec.epsilon};
}

void apply_update(const PreparedUpdate& update, std::span<float> weights, std::span<const float> gradient,
                  std::span<float* const> slots) {
  if (gradient.size() != weights.size() || slots.size() != update.slots)
    throw InvalidArgument(fmt::format("[{}] {} weights need as many gradients and {} slots, got {} and {}",
                                      optimizer_name(update.kind), weights.size(), update.slots,
                                      gradient.size(), slots.size()));
  if (update.decay != 0)
    dispatch<true>(update, weights.size(), weights.data(), gradient.data(), slots.data());
  else
    dispatch<false>(update, weights.size(), weights.data(), gradient.data(), slots.data());
}

void apply_update(const OptimizerSpec& spec, const UpdateParams& params, std::span<float> weights,
                  std::span<const float> gradient, std::span<float* const> slots) {
  apply_update(prepare_update(spec, params), weights, gradient, slots);
}

}  // namespace braid
