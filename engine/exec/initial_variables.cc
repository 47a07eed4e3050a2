#include "engine/exec/initial_variables.h"

#include <algorithm>
#include <span>

#include "engine/ops/state/variable_init.h"

namespace braid {

void fill_variable(Runtime& runtime, const std::string& name, const Shape& shape, const InitialRows& from) {
  VariableStore& store = runtime.variables();
  const Domain domain = store.domain(name);
  Tensor memory = store.get_or_create(name, DType::Float32, shape, domain);  // shares it
  const auto made = static_cast<std::size_t>(from.elements());
  if (domain == Domain::Host) {
    const std::span<float> values = memory.data<float>();
    fill_initial_rows(from, values.first(made), runtime.pool());
    std::ranges::fill(values.subspan(made), 0.0F);
    return;
  }
  Accelerator& device = *runtime.device();
  device.make_current();
  const StreamRef stream = device.stream("initial values");
  auto* const values = reinterpret_cast<float*>(memory.raw());
  fill_initial_rows(from, values, stream);
  device.fill_zero(values + made, memory.bytes() - made * sizeof(float), stream);
  device.synchronize(WaitContext::with_timeout(device.options().wait_timeout));
}

void fill_variable(Runtime& runtime, const std::string& name, const Shape& shape, float number) {
  fill_variable(runtime, name, shape,
                InitialRows::whole({InitKind::Constant, number, 0}, {}, shape.elements()));
}

void initialize_variable(Runtime& runtime, const Graph& graph, const VariableInfo& variable,
                         std::uint64_t seed) {
  VariableStore& store = runtime.variables();
  if (!store.contains(variable.name)) return;
  const Node& handle = graph.node(variable.handle);
  if (variable.dtype != DType::Float32) {
    Tensor value = *store.read(variable.name);
    initialize_variable(handle, seed, value);
    return store.write(variable.name, value);
  }
  fill_variable(runtime, variable.name, variable.shape,
                InitialRows::whole(variable_init_spec(handle), variable_init_key(handle, seed),
                                   variable.shape.elements()));
}

}  // namespace braid
