#include "worker/model/run_graph.h"

#include <algorithm>
#include <chrono>

#include "base/cpu.h"
#include "engine/compile/compile.h"
#include "engine/exec/instance.h"
#include "engine/graph/specialize.h"
#include "engine/program/program.h"

namespace braid::worker {
namespace {

constexpr std::chrono::minutes kLongest{10};

StepResult run_once(const Graph& graph, const std::vector<std::string>& fetches,
                    const std::vector<std::string>& targets, std::uint64_t seed, Runtime& runtime) {
  CompileRequest request;
  request.fetches = fetches;
  request.targets = targets;
  CompileOptions options;
  options.steps_in_flight = 1;
  Instance instance(compile(specialize(graph, {}, fetches, targets), request, options), runtime);
  StepRequest step;
  step.params.seed = seed;
  return instance.run(std::move(step), WaitContext::with_timeout(kLongest));
}

RuntimeOptions host_options() {
  RuntimeOptions options;
  options.intra_op_threads = std::max(1, usable_cores());
  return options;
}

}  // namespace

std::vector<Tensor> run_graph(const Graph& graph, const std::vector<std::string>& fetches,
                              std::uint64_t seed) {
  Runtime runtime(host_options());
  return run_once(graph, fetches, {}, seed, runtime).fetches;
}

std::map<std::string, Tensor> variables_after(const Graph& graph, const std::string& target) {
  Runtime runtime(host_options());
  run_once(graph, {}, {target}, 0, runtime);
  std::map<std::string, Tensor> values;
  for (const std::string& name : runtime.variables().names())
    if (auto value = runtime.variables().read(name)) values.emplace(name, std::move(*value));
  return values;
}

}  // namespace braid::worker
