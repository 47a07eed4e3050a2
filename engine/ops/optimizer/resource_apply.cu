// CUDA kernels of TensorFlow's optimizer ops (resource_apply_forms.h). Hyper-parameters are read by
// the device; how variables and rows are walked is in resource_apply.cuh.
#include "engine/ops/optimizer/resource_apply.cuh"
#include "engine/ops/optimizer/resource_apply_forms.h"

namespace braid {
namespace {

using namespace resource_apply;

struct Rule {
  using Update = resource_apply::Update;

  Form form;
  Settings settings;
  const float* scalars[kMostInputs];  // the inputs that are, else null
  cuda::SlottedVariable<cuda::kSlots> variable;

  Rule(const Form& f, const Settings& s, const KernelArgs& a)
      : form(f), settings(s), scalars{}, variable(a, f.slots) {
    for (int i = f.slots + 1; i < f.inputs; ++i)
      if (i != f.gradient && i != f.indices) scalars[i] = a.in<float>(i);
  }
  bool is_aligned() const { return variable.is_aligned(); }

  __device__ Update read() const {
    return read_update(form, settings, [&](int input) { return *scalars[input]; });
  }
  template <int kCount>
  __device__ void apply(const Update& update, const float* gradient, std::int64_t at) const {
    const auto g = *reinterpret_cast<const cuda::Pack<float, kCount>*>(gradient);
    with_formula(update, [&]<class F>() {
      cuda::update_pack<F, kCount, true>(update.shared, g, variable.weights, variable.slots, at);
    });
  }
};

PreparedKernel prepare(const Form& form, const PrepareContext& c) {
  const auto make = [form, settings = Settings(c.node.attrs)](const KernelArgs& a) {
    return Rule(form, settings, a);
  };
  return form.indices < 0 ? cuda::apply_dense(c, form.gradient, make)
                          : cuda::apply_rows(c, form.gradient, form.indices, make);
}

bool supports(const Form& form, std::span<const OutputInfo> inputs) {
  for (int i = 0; i <= form.slots; ++i)
    if (inputs[static_cast<std::size_t>(i)].dtype != DType::Float32) return false;
  return form.indices < 0 || cuda::has_sortable_rows(inputs, form.indices);
}

}  // namespace

void register_resource_apply_cuda(OpRegistry& registry) {
  for (const Form& form : kForms)
    registry.add_cuda(
        form.name, [&form](const PrepareContext& c) { return prepare(form, c); },
        [&form](const Node&, std::span<const OutputInfo> inputs) { return supports(form, inputs); });
}

}  // namespace braid
