// Waits for the sake of memory. Buffers share bytes only where the order of streams and events says that one
// is done with before the other begins (plan_memory.cc). Streams that have few dependencies know little of
// each other: one keeps waiting for the end of the step with what another has finished long ago. So before an
// op that begins a large buffer, its stream waits for the last op of every other compute stream that is
// predicted to be complete well before then and was the last of its stream to use a large buffer. If all
// these waits together save little, the program goes without them. Else those go that no byte is shared for,
// and the others wait for the users of what is overwritten, which may be earlier than what was waited for.
#include <algorithm>
#include <map>

#include "engine/memory/passes.h"
#include "engine/schedule/dag.h"

namespace braid {
namespace {

constexpr double kWorthwhile = 0.97;  // of the arena's bytes without the waits
constexpr double kMargin = 0.07;      // of the step: predictions are no better

class MemoryOrder {
 public:
  explicit MemoryOrder(Plan& plan)
      : plan_(plan),
        ends_(static_cast<std::size_t>(plan.program.compute_streams)),
        begins_large_(static_cast<std::size_t>(plan.ops()), 0) {}

  /// Adds the waits to what ops depend on. Whether there are any.
  bool add_waits() {
    for (int op = 0; op < plan_.ops(); ++op) own_.push_back(plan_.op(op).deps);
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

  /// REQUIRES: add_waits() and plan_memory() have run. Replaces the waits by those that the places of buffers
  /// need: at each write of a buffer for all ops that have used its bytes and are not known to be done.
  void keep_needed() {
    plan_.program.stats.waits_for_memory = 0;
    std::vector<std::vector<int>> users(plan_.program.buffers.size());
    Clocks clocks(plan_.program);
    std::vector<Clocks::Row> at(plan_.program.streams.size(), clocks.empty());
    for (int op = 0; op < plan_.ops(); ++op) {
      ProgramOp& node = plan_.op(op);
      Clocks::Row& now = at[static_cast<std::size_t>(node.stream)];
      node.deps = own_[static_cast<std::size_t>(op)];
      for (const int dep : node.deps) clocks.complete(now, dep);
      std::vector<int> before;
      for (const Operand& output : node.outputs)
        if (is_planned(output)) occupy(output.buffer, users, before);
      std::sort(before.rbegin(), before.rend());  // the last ones imply others
      for (const int user : before) {
        if (user == op || clocks.knows(now, user)) continue;
        clocks.complete(now, user);
        node.deps.push_back(user);
        ++plan_.program.stats.waits_for_memory;
      }
      std::sort(node.deps.begin(), node.deps.end());
      for (const Operand& input : node.inputs)
        if (is_planned(input)) users[static_cast<std::size_t>(input.buffer)].push_back(op);
      for (const Operand& output : node.outputs)  // when it is done, those before are
        if (is_planned(output)) users[static_cast<std::size_t>(output.buffer)] = {op};
      clocks.set(op, now);
      clocks.pass(now, op);
    }
  }

 private:
  /// Uses memory that was planned: bytes of the arena, or a slot, which ops may write in place.
  bool is_planned(const Operand& operand) const {
    if (operand.buffer < 0 || operand.access == Access::None) return false;
    const ProgramBuffer& buffer = plan_.buffer(operand.buffer);
    return (buffer.kind == BufferKind::Arena || buffer.kind == BufferKind::Slot) && buffer.bytes > 0;
  }

  /// Adds the users of what lies at the buffer's place, and puts it there.
  void occupy(int buffer, const std::vector<std::vector<int>>& users, std::vector<int>& before) {
    const auto add_users = [&](int of) {
      const auto& used_by = users[static_cast<std::size_t>(of)];
      before.insert(before.end(), used_by.begin(), used_by.end());
    };
    if (plan_.buffer(buffer).kind == BufferKind::Slot) return add_users(buffer);
    const std::uint64_t begin = plan_.buffer(buffer).offset, end = begin + plan_.buffer(buffer).bytes;
    auto next = occupants_.lower_bound(begin);
    if (next != occupants_.begin() && std::prev(next)->second.end > begin) --next;
    while (next != occupants_.end() && next->first < end) {
      const auto [from, occupant] = *next;
      add_users(occupant.buffer);
      next = occupants_.erase(next);
      if (from < begin) occupants_[from] = {begin, occupant.buffer};
      if (occupant.end > end) occupants_[end] = occupant;
    }
    occupants_[begin] = {end, buffer};
  }

  /// The last use of a large buffer by a stream.
  struct End {
    int op;
    double done;
  };
  /// Whose bytes those of the arena are, up to `end`.
  struct Occupant {
    std::uint64_t end;
    int buffer;
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
          if (buffer.kind != BufferKind::Arena || buffer.bytes < plan_.options.streams.memory_waits_from)
            continue;
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
  std::vector<std::vector<End>> ends_;           // by compute stream, in its order
  std::vector<char> begins_large_;               // by op: is the first to use a large buffer
  std::vector<std::vector<int>> own_;            // by op: what it depends on without waits for memory
  std::map<std::uint64_t, Occupant> occupants_;  // by where their bytes begin
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
  MemoryOrder order(ordered);
  const bool waits = order.add_waits();
  const double bytes = place(plan);
  if (!waits || place(ordered) > kWorthwhile * bytes) return;
  order.keep_needed();
  place_events(ordered);
  plan.program = std::move(ordered.program);
  plan.clocks = std::move(ordered.clocks);
  plan.waits = std::move(ordered.waits);
  plan.previous_waits = std::move(ordered.previous_waits);
}

}  // namespace braid
