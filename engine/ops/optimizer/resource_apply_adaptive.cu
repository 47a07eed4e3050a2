// CUDA kernels of the optimizer ops of adaptive_forms.h, walked by resource_apply.cuh.
#include "engine/ops/optimizer/adaptive_forms.h"
#include "engine/ops/optimizer/resource_apply.cuh"

namespace braid {
namespace {

using namespace adaptive;

struct Rule {
  using Update = Hyper;

  Kind kind;
  int hyper_count;
  const float* hyper[kMostHyper];
  cuda::SlottedVariable<kMostSlots> variable;

  Rule(const Form& form, const KernelArgs& a)
      : kind(form.kind), hyper_count(form.hyper), hyper{}, variable(a, form.slots) {
    for (int i = 0; i < form.hyper; ++i) hyper[i] = a.in<float>(form.first_hyper() + i);
  }
  bool is_aligned() const { return variable.is_aligned(); }

  __device__ Hyper read() const {
    Hyper values{};
    for (int i = 0; i < hyper_count; ++i) values.at[i] = *hyper[i];
    return values;
  }
  template <int kCount>
  __device__ void apply(const Hyper& h, const float* gradient, std::int64_t at) const {
    with_formula(kind, [&]<class F>() { update<F, kCount>(h, gradient, at); });
  }

 private:
  template <class F, int kCount>
  __device__ void update(const Hyper& h, const float* gradient, std::int64_t at) const {
    using Elements = cuda::Pack<float, kCount>;
    constexpr int kHeld = F::kSlots > 0 ? F::kSlots : 1;
    const auto g = *reinterpret_cast<const Elements*>(gradient);
    auto& weights = *reinterpret_cast<Elements*>(variable.weights + at);
    Elements w = weights, s[kHeld];
#pragma unroll
    for (int k = 0; k < F::kSlots; ++k) s[k] = *reinterpret_cast<const Elements*>(variable.slots[k] + at);
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      float state[kHeld];
#pragma unroll
      for (int k = 0; k < F::kSlots; ++k) state[k] = s[k].at[e];
      w.at[e] = F::apply(h, w.at[e], g.at[e], state);
#pragma unroll
      for (int k = 0; k < F::kSlots; ++k) s[k].at[e] = state[k];
    }
    weights = w;
#pragma unroll
    for (int k = 0; k < F::kSlots; ++k) *reinterpret_cast<Elements*>(variable.slots[k] + at) = s[k];
  }
};

PreparedKernel prepare(const Form& form, const PrepareContext& c) {
  const auto make = [form](const KernelArgs& a) { return Rule(form, a); };
  return form.sparse ? cuda::apply_rows(c, form.gradient(), form.indices(), make)
                     : cuda::apply_dense(c, form.gradient(), make);
}

bool supports(const Form& form, std::span<const OutputInfo> inputs) {
  for (int i = 0; i <= form.slots; ++i)
    if (inputs[static_cast<std::size_t>(i)].dtype != DType::Float32) return false;
  return !form.sparse || cuda::has_sortable_rows(inputs, form.indices());
}

}  // namespace

void register_resource_apply_adaptive_cuda(OpRegistry& registry) {
  for (const Form& form : kForms)
    registry.add_cuda(
        form.name, [&form](const PrepareContext& c) { return prepare(form, c); },
        [&form](const Node&, std::span<const OutputInfo> inputs) { return supports(form, inputs); });
}

}  // namespace braid
