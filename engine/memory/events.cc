// Waits within a step. An op waits for a dependency's own event, unless the order that is there already
// implies it: the stream's, or that of waits placed before. Dependencies are taken from the last issued to
// the first, so that a wait which implies others is placed first; what remains are exactly the cross-stream
// edges of the order's transitive reduction, which no other set of waits can do without.
#include "engine/memory/passes.h"

namespace braid {

void place_events(Plan& plan) {
  const Program& program = plan.program;
  plan.clocks = Clocks(program);
  plan.waits.assign(program.ops.size(), {});
  plan.previous_waits.assign(program.ops.size(), {});
  std::vector<Clocks::Row> at(program.streams.size(), plan.clocks.empty());
  ProgramStats& stats = plan.program.stats;
  stats.waits_issued = stats.waits_removed = 0;
  for (int op = 0; op < plan.ops(); ++op) {
    const ProgramOp& node = plan.op(op);
    Clocks::Row& now = at[static_cast<std::size_t>(node.stream)];
    for (auto dep = node.deps.rbegin(); dep != node.deps.rend(); ++dep) {
      const bool other = plan.op(*dep).stream != node.stream || plan.op(*dep).async;
      if (!other) continue;
      if (!plan.options.streams.keep_all_events && plan.clocks.knows(now, *dep)) {
        ++stats.waits_removed;
        continue;
      }
      plan.waits[static_cast<std::size_t>(op)].push_back(*dep);
      plan.clocks.complete(now, *dep);
      ++stats.waits_issued;
    }
    plan.clocks.set(op, now);
    plan.clocks.pass(now, op);
  }
}

}  // namespace braid
