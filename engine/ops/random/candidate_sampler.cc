// UniformCandidateSampler and LogUniformCandidateSampler (true classes [B, num_true]): num_sampled classes
// below range_max, and how often each true and each sampled class is expected among them. What is drawn
// follows from the job's seed, the node's name and the step (engine/ops/common/random_key.h).
//   P(k) = 1 / range, or log((k + 2) / (k + 1)) / log(range + 1)
//   expected count: P num_sampled; of `unique` samples, which took n tries: 1 - (1 - P)^n
// As tensorflow/core/kernels/range_sampler.cc, with other random numbers.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/random_key.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

struct Sampling {
  std::int64_t samples = 0, range = 0;
  bool unique = false, log_uniform = false;

  double probability(std::int64_t k) const {
    if (!log_uniform) return 1.0 / static_cast<double>(range);
    const auto at = static_cast<double>(k);
    return std::log((at + 2) / (at + 1)) / std::log1p(static_cast<double>(range));
  }
  /// Of a uniform number in [0, 1).
  std::int64_t drawn(float u) const {
    const auto n = static_cast<double>(range);
    const double at = log_uniform ? std::exp(double{u} * std::log1p(n)) - 1 : double{u} * n;
    return std::min(static_cast<std::int64_t>(at), range - 1);
  }
  float expected_count(std::int64_t k, std::int64_t tries) const {
    const double p = probability(k), n = static_cast<double>(tries);
    return static_cast<float>(unique ? -std::expm1(n * std::log1p(-p)) : p * n);
  }
};

Sampling sampling_of(const Node& node) {
  return {node.attrs.get("num_sampled", std::int64_t{0}), node.attrs.get("range_max", std::int64_t{0}),
          node.attrs.get("unique", false), node.op->name == "LogUniformCandidateSampler"};
}

void infer(InferContext& c) {
  c.require_rank(0, 2);
  require_dtype(c, 0, {DType::Int64});
  const Sampling sampling = sampling_of(c.node());
  if (sampling.samples < 1 || sampling.range < 1)
    c.fail(fmt::format("num_sampled and range_max must be positive, got {} and {}", sampling.samples,
                       sampling.range));
  if (sampling.unique && sampling.samples > sampling.range)
    c.fail(fmt::format("{} different samples cannot be drawn from {} classes", sampling.samples,
                       sampling.range));
  c.output(DType::Int64, Shape{sampling.samples});
  c.output(DType::Float32, c.shape(0));
  c.output(DType::Float32, Shape{sampling.samples});
}

/// One uniform number after the other.
class Uniforms {
 public:
  explicit Uniforms(RngKey key) : key_(key) {}
  float next() {
    if (at_ == numbers_.size()) {
      fill_uniform01(key_, first_, numbers_);
      first_ += numbers_.size();
      at_ = 0;
    }
    return numbers_[at_++];
  }

 private:
  RngKey key_;
  std::array<float, 64> numbers_{};
  std::uint64_t first_ = 0;
  std::size_t at_ = 64;
};

/// Fills `samples`; `seen` has as much room. Result: the tries that it took.
std::int64_t draw(const Sampling& sampling, Uniforms& uniforms, std::int64_t* samples, std::int64_t* seen) {
  std::int64_t tries = 0;
  for (std::int64_t i = 0; i < sampling.samples; ++tries) {
    const std::int64_t value = sampling.drawn(uniforms.next());
    if (sampling.unique) {
      std::int64_t* const at = std::lower_bound(seen, seen + i, value);
      if (at != seen + i && *at == value) continue;
      std::copy_backward(at, seen + i, seen + i + 1);
      *at = value;
    }
    samples[i++] = value;
  }
  return tries;
}

PreparedKernel prepare(const PrepareContext& c) {
  const Sampling sampling = sampling_of(c.node);
  const std::int64_t truths = c.inputs[0].shape.elements();
  PreparedKernel kernel;
  kernel.scratch_bytes =
      sampling.unique ? static_cast<std::size_t>(sampling.samples) * sizeof(std::int64_t) : 0;
  kernel.run = [=, key = RandomKey(c.node.attrs, c.node.name),
                place = place_of(c.node)](const KernelArgs& a) {
    Uniforms uniforms(key.at(*a.params));
    auto* samples = a.out<std::int64_t>(0);
    const std::int64_t tries = draw(sampling, uniforms, samples, static_cast<std::int64_t*>(a.scratch));
    for (std::int64_t i = 0; i < truths; ++i) {
      const std::int64_t k = a.in<std::int64_t>(0)[i];
      if (k < 0 || k >= sampling.range)
        throw InvalidArgument(fmt::format("{}: class {} is not in [0, {})", place, k, sampling.range));
      a.out<float>(1)[i] = sampling.expected_count(k, tries);
    }
    for (std::int64_t i = 0; i < sampling.samples; ++i)
      a.out<float>(2)[i] = sampling.expected_count(samples[i], tries);
  };
  return kernel;
}

}  // namespace

void register_candidate_sampler(OpRegistry& registry) {
  for (const char* name : {"UniformCandidateSampler", "LogUniformCandidateSampler"})
    registry.add(
        {.name = name,
         .traits = computes()
                       .names({"sampled_candidates", "true_expected_count", "sampled_expected_count"})
                       .type_attrs({}),
         .min_inputs = 1,
         .max_inputs = 1,
         .infer = infer,
         .no_gradient_reason = "its outputs are drawn, not computed from its inputs",
         .cpu = prepare,
         .stateful = true});
}

}  // namespace braid
