#include "engine/compile/compile.h"

#include <string>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/compile/passes.h"

namespace braid {
std::shared_ptr<const Program> compile(const Graph& graph, const CompileRequest& request,
                                       const CompileOptions& options) {
  if (options.steps_in_flight < 1)
    throw InvalidArgument("at least one step must be in flight, got " +
                          std::to_string(options.steps_in_flight));
  Plan plan(request, options);
  plan.program.graph = graph;
  plan.program.steps_in_flight = options.steps_in_flight;
  plan.program.deterministic = options.deterministic;
  plan.program.domain = options.domain;

  for (const Pass& pass : passes()) {
    if (pass.domain == PassDomain::Device && options.domain != Domain::Device) continue;
    plan.pass = pass.name;
    pass.run(plan);
  }
  for (const Note& note : plan.program.notes) log_debug("{}", to_string(note));
  return std::make_shared<const Program>(std::move(plan.program));
}

}  // namespace braid
