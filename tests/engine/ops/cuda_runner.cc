#include "tests/engine/ops/cuda_runner.h"

#include <array>

#include "engine/compile/compile.h"
#include "engine/exec/instance.h"
#include "engine/program/program.h"

namespace braid::testing {

std::shared_ptr<Accelerator> cuda_device(Products products) {
  const auto open = [](Products of) {
    AcceleratorOptions options;
    options.tf32 = of == Products::Tf32;
    options.measure_products = of == Products::Measured;
    return cuda_device_count() > 0 ? open_cuda(options) : nullptr;
  };
  static const std::array<std::shared_ptr<Accelerator>, 3> opened{open(Products::Exact), open(Products::Tf32),
                                                                  open(Products::Measured)};
  return opened[static_cast<std::size_t>(products)];
}

Results run_program(const OpDef& def, const OpCase& op_case, Domain domain, int steps, int streams,
                    Products products) {
  CaseGraph made = make_case_graph(def, op_case);
  CompileRequest request;
  StepRequest step;
  for (const auto& [id, tensor] : made.execution.feeds) {
    request.feeds.push_back({made.graph.node(id).name, tensor.dtype(), tensor.shape()});
    step.feeds.push_back(tensor);
  }
  for (const ValueRef output : made.outputs()) request.fetches.push_back(made.graph.value_name(output));
  request.targets = {made.graph.node(made.node).name};
  CompileOptions options;
  options.domain = domain;
  options.streams.count = streams;
  const auto program = compile(made.graph, request, options);
  RuntimeOptions runtime_options;
  runtime_options.device = cuda_device(products);
  Runtime runtime(runtime_options);
  Instance instance(program, runtime);
  Results results;
  for (const ProgramOp& op : program->ops) {
    results.runs = results.runs || op.node == made.node;
    results.on_device = results.on_device || (op.node == made.node && op.domain == Domain::Device);
  }
  for (const auto& [id, tensor] : made.execution.variables)
    if (const std::string& name = made.graph.node(id).name; runtime.variables().read(name))
      runtime.variables().write(name, tensor);
  step.params = made.execution.params;
  step.params.learning_rate = 0.1F;
  step.params.seed = 7;
  // Launched once, then captured, then replayed: all give the same.
  for (int s = 0; s < steps; ++s) {
    step.params.step = static_cast<std::uint64_t>(s);
    StepRequest request_of_step = step;
    results.outputs =
        instance.run(std::move(request_of_step), WaitContext::with_timeout(std::chrono::seconds(60))).fetches;
  }
  for (const auto& [id, tensor] : made.execution.variables)
    if (auto value = runtime.variables().read(made.graph.node(id).name)) results.variables.push_back(*value);
  return results;
}

}  // namespace braid::testing
