#include "base/optim.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/optim_formulas.h"

// Compiled with -O3 -fno-math-errno -fno-trapping-math -ffp-contract=off (base/CMakeLists.txt), so that the
// loops become vectors and vector body and scalar remainder round alike.

namespace braid {
namespace {

/// What happens to a weight and its scaled gradient before the formula.
enum class Before { Nothing, Decay, All };

template <Before kBefore>
optim::Prepared<float> before(const PreparedUpdate& u, float w, float g) {
  // decay == 0 is its own case: w - 0 * w turns -0 into 0 and inf into NaN.
  if constexpr (kBefore == Before::Nothing) return {w, g};
  if constexpr (kBefore == Before::Decay) return {w - u.decay * w, g};
  return optim::surrounded(u, w, g);
}

/// Slots beyond those of the formula are not used.
template <class Formula, Before kBefore>
void update_run(const PreparedUpdate& update, std::size_t n, float* __restrict w, const float* __restrict g,
                float* __restrict s0, float* __restrict s1, float* __restrict s2) {
  const PreparedUpdate u = update;
  for (std::size_t i = 0; i < n; ++i) {
    float slots[optim::kMostSlots] = {};
    if constexpr (Formula::kSlots > 0) slots[0] = s0[i];
    if constexpr (Formula::kSlots > 1) slots[1] = s1[i];
    if constexpr (Formula::kSlots > 2) slots[2] = s2[i];
    const auto [weight, gradient] = before<kBefore>(u, w[i], g[i] * u.grad_scale);
    const float updated = Formula::apply(u, weight, gradient, slots);
    const bool stays = kBefore == Before::All && u.skip_nan && g[i] != g[i];
    w[i] = stays ? w[i] : updated;
    if constexpr (Formula::kSlots > 0) s0[i] = stays ? s0[i] : slots[0];
    if constexpr (Formula::kSlots > 1) s1[i] = stays ? s1[i] : slots[1];
    if constexpr (Formula::kSlots > 2) s2[i] = stays ? s2[i] : slots[2];
  }
}

void dispatch(const PreparedUpdate& u, std::size_t n, float* w, const float* g, float* const* slots) {
  const auto run = [&]<class Formula, Before kBefore>() {
    update_run<Formula, kBefore>(u, n, w, g, Formula::kSlots > 0 ? slots[0] : nullptr,
                                 Formula::kSlots > 1 ? slots[1] : nullptr,
                                 Formula::kSlots > 2 ? slots[2] : nullptr);
  };
  if (!u.basic)
    optim::with_formula(u, [&]<class Formula>() { run.template operator()<Formula, Before::All>(); });
  else if (u.decay != 0)
    optim::with_basic_formula(u, [&]<class Formula>() { run.template operator()<Formula, Before::Decay>(); });
  else
    optim::with_basic_formula(u,
                              [&]<class Formula>() { run.template operator()<Formula, Before::Nothing>(); });
}

/// The gradient of element i as the formula takes it.
template <bool kAll>
optim::Prepared<float> of_row(const PreparedUpdate& u, float w, float g) {
  if constexpr (kAll) return optim::surrounded(u, w, g);
  return {u.decay != 0 ? w - u.decay * w : w, g};
}

template <bool kAll>
void update_row(const PreparedUpdate& update, std::size_t n, float* __restrict w, const float* __restrict g,
                float& accumulator) {
  const PreparedUpdate u = update;
  float squares[optim::kSquareSums] = {};
  const std::size_t whole = n / optim::kSquareSums * optim::kSquareSums;
  for (std::size_t i = 0; i < whole; i += optim::kSquareSums)
    for (std::size_t k = 0; k < optim::kSquareSums; ++k) {
      const float gradient = of_row<kAll>(u, w[i + k], g[i + k] * u.grad_scale).g;
      squares[k] += gradient * gradient;
    }
  for (std::size_t i = whole; i < n; ++i) {
    const float gradient = of_row<kAll>(u, w[i], g[i] * u.grad_scale).g;
    squares[i - whole] += gradient * gradient;
  }
  accumulator += optim::mean_square(squares, static_cast<float>(n));
  const float divisor = std::sqrt(accumulator) + u.adagrad_epsilon;
  for (std::size_t i = 0; i < n; ++i) {
    const auto [weight, gradient] = of_row<kAll>(u, w[i], g[i] * u.grad_scale);
    w[i] = weight - u.learning_rate * gradient / divisor;
  }
}

void require_known(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::Sgd:
    case OptimizerKind::Momentum:
    case OptimizerKind::Adagrad:
    case OptimizerKind::Adam:
    case OptimizerKind::Ftrl:
    case OptimizerKind::RmsProp:
      return;
    case OptimizerKind::Adafactor:
    case OptimizerKind::Adam8Bit:
      throw InvalidArgument(fmt::format("[optim] {} does not go element by element", optimizer_name(kind)));
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
    case OptimizerKind::Ftrl:
      return "FTRL";
    case OptimizerKind::RmsProp:
      return "RMSPROP";
    case OptimizerKind::Adafactor:
      return "ADAFACTOR";
    case OptimizerKind::Adam8Bit:
      return "ADAM_8BIT";
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
    case OptimizerKind::Ftrl:
      return {{"accumulator", spec.initial_accumulator}, {"linear", 0.0F}};
    case OptimizerKind::RmsProp: {
      std::vector<SlotSpec> slots{{"rms", spec.initial_accumulator}};
      if (spec.centered) slots.push_back({"mean_gradient", 0.0F});
      if (spec.momentum > 0) slots.push_back({"momentum", 0.0F});
      return slots;
    }
    case OptimizerKind::Adafactor:
    case OptimizerKind::Adam8Bit:
      throw InvalidArgument(
          fmt::format("optimizer.kind {} has states of other shapes than its variables, and here slots like "
                      "them are needed: give these variables an optimizer.group of another kind",
                      optimizer_name(spec.kind)));
  }
  throw InvalidArgument(fmt::format("[optim] no optimizer has the number {}", static_cast<int>(spec.kind)));
}

void apply_row_update(const PreparedUpdate& update, std::span<float> weights, std::span<const float> gradient,
                      float& accumulator) {
  if (gradient.size() != weights.size() || !update.row_wise)
    throw InvalidArgument(fmt::format("[{}] a row of {} weights needs as many gradients, got {}",
                                      optimizer_name(update.kind), weights.size(), gradient.size()));
  if (weights.empty()) return;
  if (update.basic)
    update_row<false>(update, weights.size(), weights.data(), gradient.data(), accumulator);
  else
    update_row<true>(update, weights.size(), weights.data(), gradient.data(), accumulator);
}

float effective_learning_rate(const OptimizerSpec& spec, const UpdateParams& params) {
  return optim::effective_rate(spec, params);
}

PreparedUpdate prepare_update(const OptimizerSpec& spec, const UpdateParams& params) {
  require_known(spec.kind);
  return optim::prepared(spec, params);
}

void apply_update(const PreparedUpdate& update, std::span<float> weights, std::span<const float> gradient,
                  std::span<float* const> slots) {
  if (gradient.size() != weights.size() || slots.size() != update.slots)
    throw InvalidArgument(fmt::format("[{}] {} weights need as many gradients and {} slots, got {} and {}",
                                      optimizer_name(update.kind), weights.size(), update.slots,
                                      gradient.size(), slots.size()));
  dispatch(update, weights.size(), weights.data(), gradient.data(), slots.data());
}

void apply_update(const OptimizerSpec& spec, const UpdateParams& params, std::span<float> weights,
                  std::span<const float> gradient, std::span<float* const> slots) {
  apply_update(prepare_update(spec, params), weights, gradient, slots);
}

}  // namespace braid
