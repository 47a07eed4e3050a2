// Waits for the sake of memory. Buffers share bytes only where the order of streams and events says that one
// is done with before the other begins (memory.cc). Streams that have few dependencies know little of each
// other: one keeps waiting for the end of the step with what another has finished long ago. So before an op
// that begins a large buffer, its stream waits for the last op of every other compute stream that is
// predicted to be complete well before then and was the last of its stream to use a large buffer. If all
// these waits together save little, the program goes without them.
#include <algorithm>

#include "engine/passes/dag.h"
#include "engine/passes/plan.h"

namespace braid {
namespace {

constexpr double kWorthwhile = 0.97;  // of the arena's bytes without the waits
constexpr double kMargin = 0.1;       // of the step: predictions are no better

class MemoryOrder {
 public:
  explicit MemoryOrder(Plan& plan)
      : plan_(plan),
        ends_(static_cast<std::size_t>(plan.program.compute_streams)),
        begins_large_(static_cast<std::size_t>(plan.ops()), 0) {}

  /// Whether there is anything to wait for.
  bool run() {
    predict_times();
    find_large();
    Clocks clocks(plan_.program);
    std::vector<Clocks::Row> at(plan_.program.streams.size(), clocks.empty());
    for (int op = 0; op < plan_.ops(); ++op) {
      Clocks::Row& now = at[static_cast<std::size_t>(plan_.op(op).stream)];
      auto& deps = plan_.op(op).deps;
      for (const int dep : deps) clocks.complete(now, dep);
      if (begins_large_[static_cast<std::size_t>(op)]) {
        for (const int other : complete_before(op)) {
          if (clocks.knows(now, other)) continue;
          clocks.complete(now, other);
          deps.push_back(other);
          ++plan_.program.stats.waits_for_memory;
        }
        std::sort(deps.begin(), deps.end());
      }
      clocks.set(op, now);
      clocks.pass(now, op);
    }
    return plan_.program.stats.waits_for_memory > 0;
  }

 private:
  /// The last use of a large buffer by a stream.
  struct End {
    int op;
    double done;
  };

  bool computes(int op) const {
    return plan_.op(op).stream < plan_.program.compute_streams && !plan_.op(op).async;
  }

  void predict_times() {
    const Dag dag(plan_);
    std::vector<int> order, streams;
    for (int op = 0; op < plan_.ops(); ++op) {
      order.push_back(op);
      streams.push_back(plan_.op(op).stream);
    }
    times_ = predict(dag, order, streams, static_cast<int>(plan_.program.streams.size()));
  }

  void find_large() {
    const std::size_t streams = ends_.size();
    std::vector<int> last(plan_.program.buffers.size() * streams, -1);  // use, by buffer and stream
    std::vector<char> begun(plan_.program.buffers.size(), 0);
    for (int op = 0; op < plan_.ops(); ++op) {
      for (const auto* operands : {&plan_.op(op).inputs, &plan_.op(op).outputs}) {
        for (const Operand& operand : *operands) {
          if (operand.buffer < 0 || operand.access == Access::None) continue;
          const ProgramBuffer& buffer = plan_.buffer(operand.buffer);
          if (buffer.kind != BufferKind::Arena || buffer.bytes < plan_.options.memory_waits_from) continue;
          const auto b = static_cast<std::size_t>(operand.buffer);
          if (!begun[b]) begins_large_[static_cast<std::size_t>(op)] = computes(op);
          begun[b] = 1;
          if (computes(op)) last[b * streams + static_cast<std::size_t>(plan_.op(op).stream)] = op;
        }
      }
    }
    std::sort(last.begin(), last.end());
    last.erase(std::unique(last.begin(), last.end()), last.end());
    for (const int op : last)
      if (op >= 0)
        ends_[static_cast<std::size_t>(plan_.op(op).stream)].push_back(
            {op, times_.done[static_cast<std::size_t>(op)]});
  }

  /// Of each other stream the last end that is predicted to lie well before the op's start.
  std::vector<int> complete_before(int op) const {
    const double start = times_.start[static_cast<std::size_t>(op)] - kMargin * times_.end;
    std::vector<int> found;
    for (std::size_t stream = 0; stream < ends_.size(); ++stream) {
      if (static_cast<int>(stream) == plan_.op(op).stream) continue;
      const auto& ends = ends_[stream];
      auto after = std::partition_point(ends.begin(), ends.end(),
                                        [&](const End& end) { return end.done <= start && end.op < op; });
      if (after != ends.begin()) found.push_back(std::prev(after)->op);
    }
    std::sort(found.rbegin(), found.rend());
    return found;
  }

  Plan& plan_;
  Timeline times_;
  std::vector<std::vector<End>> ends_;  // by compute stream, in its order
  std::vector<char> begins_large_;      // by op: is the first to use a large buffer
};

}  // namespace

void place_events_and_memory(Plan& plan) {
  const auto place = [](Plan& any) {
    place_events(any);
    plan_memory(any);
    return static_cast<double>(any.program.stats.arena_bytes + any.program.stats.device_arena_bytes);
  };
  if (plan.program.compute_streams < 2) {
    place(plan);
    return;
  }
  Plan ordered = plan;
  const bool waits = MemoryOrder(ordered).run();
  const double bytes = place(plan);
  if (!waits || place(ordered) > kWorthwhile * bytes) return;
  plan.program = std::move(ordered.program);
  plan.clocks = std::move(ordered.clocks);
  plan.waits = std::move(ordered.waits);
  plan.previous_waits = std::move(ordered.previous_waits);
}

}  // namespace braid
