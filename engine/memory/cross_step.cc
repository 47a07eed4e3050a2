// Waits on the step before. Up to k steps are in flight and share one arena and the variables, so an op of
// step n + 1 may need an op of step n to be complete that neither stream order nor step n's own events imply:
//
//   arena      of the buffers that cover a byte, one is the first in the step and one the last (ordered,
//              or they would not share it): the first's writer waits for all users of the last
//   variables  readers and the first writer wait for the last writer, the first writer for all readers
//   async ops  wait for themselves, so that a kernel is never entered twice
//
// Everything further follows through the steps between. Feeds, slots and StepParams exist k times.
#include <algorithm>
#include <map>
#include <set>

#include "engine/memory/passes.h"

namespace braid {
namespace {

class StepOrder {
 public:
  explicit StepOrder(Plan& plan)
      : plan_(plan), needs_(plan.program.ops.size()), accessors_(plan.program.buffers.size()) {}

  void run() {
    for (int op = 0; op < plan_.ops(); ++op) {
      for (const auto* operands : {&plan_.op(op).inputs, &plan_.op(op).outputs})
        for (const Operand& operand : *operands) add_accessor(operand, op);
      if (plan_.op(op).async) need(op, op);
    }
    collect_arena();
    collect_variables();
    place_waits();
  }

 private:
  void add_accessor(const Operand& operand, int op) {
    if (operand.buffer < 0 || operand.access == Access::None) return;
    auto& ops = accessors_[static_cast<std::size_t>(operand.buffer)];
    if (ops.empty() || ops.back() != op) ops.push_back(op);  // in issue order: the first is the writer
  }

  void need(int op, int previous) { needs_[static_cast<std::size_t>(op)].push_back(previous); }

  void collect_arena() {
    struct Edge {
      std::uint64_t at;
      bool begins;
      int writer, buffer;
    };
    std::vector<Edge> edges;
    for (std::size_t b = 0; b < plan_.program.buffers.size(); ++b) {
      const ProgramBuffer& buffer = plan_.program.buffers[b];
      if (buffer.kind != BufferKind::Arena || buffer.bytes == 0 || accessors_[b].empty()) continue;
      edges.push_back({buffer.offset, true, accessors_[b].front(), static_cast<int>(b)});
      edges.push_back({buffer.offset + buffer.bytes, false, accessors_[b].front(), static_cast<int>(b)});
    }
    std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) { return a.at < b.at; });
    std::set<std::pair<int, int>> covering;  // (writer, buffer) over the current bytes, in issue order
    std::set<std::pair<int, int>> pairs;     // (first buffer, last buffer)
    for (std::size_t i = 0; i < edges.size();) {
      const std::uint64_t at = edges[i].at;
      for (; i < edges.size() && edges[i].at == at; ++i) {
        if (edges[i].begins)
          covering.emplace(edges[i].writer, edges[i].buffer);
        else
          covering.erase({edges[i].writer, edges[i].buffer});
      }
      if (!covering.empty()) pairs.emplace(covering.begin()->second, covering.rbegin()->second);
    }
    for (const auto& [first, last] : pairs)
      for (const int user : accessors_[static_cast<std::size_t>(last)])
        need(accessors_[static_cast<std::size_t>(first)].front(), user);
  }

  void collect_variables() {
    for (const ProgramVariable& variable : plan_.program.variables) {
      const auto& ops = accessors_[static_cast<std::size_t>(variable.buffer)];
      std::vector<int> writers;
      for (const int op : ops)
        if (writes(op, variable.buffer)) writers.push_back(op);
      if (writers.empty()) continue;
      for (const int op : ops) {
        need(op, writers.back());
        need(writers.front(), op);
      }
    }
  }

  bool writes(int op, int buffer) const {
    const auto& inputs = plan_.op(op).inputs;
    return std::any_of(inputs.begin(), inputs.end(), [&](const Operand& in) {
      return in.buffer == buffer && (in.access == Access::Write || in.access == Access::ReadWrite);
    });
  }

  void place_waits() {
    const Clocks& clocks = plan_.clocks;
    // What each stream knows of step n when it begins step n + 1: everything it knew at its end.
    std::vector<Clocks::Row> at(plan_.program.streams.size(), clocks.empty());
    for (int op = 0; op < plan_.ops(); ++op) {
      Clocks::Row& end = at[static_cast<std::size_t>(plan_.op(op).stream)];
      clocks.join(end, clocks.of(op));
      clocks.pass(end, op);
    }
    Clocks previous =
        clocks;  // by op: what it knows of the step before; rows are replaced as ops are visited
    for (int op = 0; op < plan_.ops(); ++op) {
      const auto i = static_cast<std::size_t>(op);
      Clocks::Row& now = at[static_cast<std::size_t>(plan_.op(op).stream)];
      for (const int wait : plan_.waits[i]) clocks.join(now, previous.of(wait));
      auto& needs = needs_[i];
      std::sort(needs.rbegin(), needs.rend());
      needs.erase(std::unique(needs.begin(), needs.end()), needs.end());
      for (const int need : needs) {
        const bool other = plan_.op(need).stream != plan_.op(op).stream || plan_.op(need).async;
        if (!other || (!plan_.options.streams.keep_all_events && clocks.knows(now, need))) continue;
        plan_.previous_waits[i].push_back(need);
        clocks.complete(now, need);
        ++plan_.program.stats.waits_previous;
      }
      previous.set(op, now);
    }
  }

  Plan& plan_;
  std::vector<std::vector<int>> needs_;      // by op: ops of the step before
  std::vector<std::vector<int>> accessors_;  // by buffer, in issue order
};

}  // namespace

void order_steps(Plan& plan) {
  if (plan.program.steps_in_flight > 1) StepOrder(plan).run();
}

}  // namespace braid
