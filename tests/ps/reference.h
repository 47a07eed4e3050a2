// What tables must do, done serially on whole variables: the sum of the workers' gradients in worker order,
// then one apply_update. And gradients that differ by worker, step and element, with sums that depend on
// their order.
#pragma once

#include <cstdint>
#include <vector>

#include "base/init.h"
#include "base/optim.h"

namespace braid::ps {

class ReferenceVariable {
 public:
  ReferenceVariable(const OptimizerSpec& optimizer, std::vector<float> values)
      : optimizer_(optimizer), values_(std::move(values)) {
    for (const SlotSpec& slot : optimizer_slots(optimizer))
      slots_.emplace_back(values_.size(), slot.initial_value);
  }

  /// Elements [begin, begin + size of a gradient).
  void apply(const UpdateParams& params, const std::vector<std::vector<float>>& gradients,
             std::size_t begin = 0) {
    std::vector<float> sum = gradients[0];
    for (std::size_t w = 1; w < gradients.size(); ++w)
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradients[w][i];
    std::vector<float*> slots;
    for (auto& slot : slots_) slots.push_back(slot.data() + begin);
    apply_update(optimizer_, params, {values_.data() + begin, sum.size()}, sum, slots);
  }

  const std::vector<float>& values() const { return values_; }
  const std::vector<float>& slot(std::size_t k) const { return slots_[k]; }

 private:
  OptimizerSpec optimizer_;
  std::vector<float> values_;
  std::vector<std::vector<float>> slots_;
};

/// Normal values times powers of two from 2^-6 to 2^6, so that additions in another order give other bits.
inline std::vector<float> random_floats(std::string_view name, std::uint64_t step, std::size_t count) {
  std::vector<float> values(count);
  fill_normal01(make_rng_key(1234, name, step), 0, values);
  for (std::size_t i = 0; i < count; ++i) values[i] *= static_cast<float>(1 << (i * 7 % 13)) / 64.0F;
  return values;
}

inline std::vector<OptimizerSpec> all_optimizers() {
  std::vector<OptimizerSpec> specs;
  for (const OptimizerKind kind : kOptimizerKinds) {
    OptimizerSpec spec;
    spec.kind = kind;
    specs.push_back(spec);
  }
  specs.push_back(specs[1]);
  specs.back().nesterov = true;
  specs.back().weight_decay = 0.01F;
  specs.push_back({.kind = OptimizerKind::Adagrad, .initial_accumulator = 0, .adagrad_epsilon = 1e-8F});
  specs.push_back({.kind = OptimizerKind::RmsProp,
                   .momentum = 0.5F,
                   .epsilon = 0.01F,
                   .centered = true,
                   .l1 = 0.01F,
                   .l2 = 0.02F,
                   .clip_value = 3,
                   .learning_rate_factor = 0.5F});
  return specs;
}

}  // namespace braid::ps
