// Orders the accesses to each variable. Writers must be ordered by the graph; a reader that no path orders
// after a writer is put before it by an edge. What counts for a value read through ReadVariableOp is where
// that node stands: if a user of the value can only run after a later write, the value is copied at the read.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "engine/ir/op.h"
#include "engine/schedule/passes.h"

namespace braid {
namespace {

/// For every op, which of a small set of marked ops come before it.
class Marks {
 public:
  Marks(std::size_t ops, std::size_t marks) : words_((marks + 63) / 64), bits_(ops * words_, 0) {}
  void set(int op, std::size_t mark) { row(op)[mark / 64] |= std::uint64_t{1} << (mark % 64); }
  bool has(int op, std::size_t mark) const {
    return (bits_[static_cast<std::size_t>(op) * words_ + mark / 64] >> (mark % 64)) & 1;
  }
  void merge(int into, int from) {
    for (std::size_t w = 0; w < words_; ++w) row(into)[w] |= row(from)[w];
  }

 private:
  std::uint64_t* row(int op) { return bits_.data() + static_cast<std::size_t>(op) * words_; }
  std::size_t words_;
  std::vector<std::uint64_t> bits_;
};

class VariableOrder {
 public:
  explicit VariableOrder(Plan& plan) : plan_(plan), original_ops_(plan.ops()) {}

  void run() {
    find_writers();
    if (writers_.empty()) return;
    refuse_unordered_writes();
    while (true) {
      for (auto& deps : added_) deps.clear();
      added_.resize(static_cast<std::size_t>(plan_.ops()));
      add_edges();
      const std::vector<int> cycle = ops_on_cycles();
      if (cycle.empty()) break;
      if (!copy_reads_of(cycle)) refuse_cycle(cycle);
    }
    for (int op = 0; op < plan_.ops(); ++op) {
      auto& deps = plan_.op(op).deps;
      const auto& added = added_[static_cast<std::size_t>(op)];
      deps.insert(deps.end(), added.begin(), added.end());
      std::sort(deps.begin(), deps.end());
      deps.erase(std::unique(deps.begin(), deps.end()), deps.end());
    }
  }

 private:
  struct Writer {
    int op;
    int variable;  // buffer
    friend auto operator<=>(const Writer&, const Writer&) = default;
  };

  void find_writers() {
    std::set<Writer> found;
    for (int op = 0; op < plan_.ops(); ++op) {
      if (!plan_.op(op).writes_variable) continue;
      for (const Operand& in : plan_.op(op).inputs)
        if (in.access == Access::Write || in.access == Access::ReadWrite) found.insert({op, in.buffer});
    }
    writers_.assign(found.begin(), found.end());
    for (std::size_t w = 0; w < writers_.size(); ++w) by_variable_[writers_[w].variable].push_back(w);
    // Ops are in topological order here, so one walk is enough.
    before_ = Marks(static_cast<std::size_t>(original_ops_), writers_.size());
    for (std::size_t w = 0; w < writers_.size(); ++w) before_.set(writers_[w].op, w);
    for (int op = 0; op < original_ops_; ++op)
      for (const int dep : plan_.op(op).deps) before_.merge(op, dep);
  }

  void refuse_unordered_writes() const {
    for (const auto& [variable, writers] : by_variable_) {
      for (std::size_t i = 1; i < writers.size(); ++i) {
        // In topological order, so each must follow the one before it.
        const Writer &a = writers_[writers[i - 1]], &b = writers_[writers[i]];
        if (before_.has(b.op, writers[i - 1])) continue;
        const auto index = static_cast<std::size_t>(plan_.buffer(variable).index);
        throw InvalidArgument(plan_.program.place(a.op) + " and " + plan_.program.place(b.op) +
                              " both write variable '" + plan_.program.variables[index].name +
                              "' and nothing orders them; add a control dependency");
      }
    }
  }

  /// Whether the value that `read` uses is the one after writer w.
  bool sees(const VariableRead& read, std::size_t w) const {
    if (read.read == kNoNode) return before_.has(read.op, w);
    return std::any_of(read.after.begin(), read.after.end(), [&](int op) { return before_.has(op, w); });
  }

  bool is_copied(const VariableRead& read) const { return read.op >= original_ops_; }

  bool must_copy(const VariableRead& read, std::size_t w) const {
    // The user runs after a write that the read does not see, or writes what it still reads.
    return read.read != kNoNode && !is_copied(read) && before_.has(read.op, w) && !sees(read, w);
  }

  void add_edges() {
    for (std::size_t r = 0; r < plan_.reads.size(); ++r) {
      const int variable =
          plan_.op(plan_.reads[r].op).inputs[static_cast<std::size_t>(plan_.reads[r].input)].buffer;
      const auto writers = by_variable_.find(variable);
      if (writers == by_variable_.end()) continue;
      const bool copied = std::any_of(writers->second.begin(), writers->second.end(),
                                      [&](std::size_t w) { return must_copy(plan_.reads[r], w); });
      if (copied) copy_read(r);
      const int reader = plan_.reads[r].op;
      for (const std::size_t w : writers->second)
        if (!sees(plan_.reads[r], w) && writers_[w].op != reader)
          added_[static_cast<std::size_t>(writers_[w].op)].push_back(reader);
    }
  }

  /// Replaces the use of the variable's memory by a use of a copy made where the value is read.
  void copy_read(std::size_t r) {
    VariableRead& read = plan_.reads[r];
    const Operand used = plan_.op(read.op).inputs[static_cast<std::size_t>(read.input)];
    auto [copy, is_new] = copies_.try_emplace({read.read, used.buffer}, plan_.ops());
    if (is_new) {
      ProgramOp op;
      op.kind = OpKind::Copy;
      op.node = read.read;
      op.name = plan_.program.graph.node(read.read).name + "/copy";
      op.op = "braid.Copy";
      op.domain = plan_.buffer(used.buffer).domain;
      op.deps = read.after;
      op.inputs.push_back({used.buffer, Access::Read, -1});
      plan_.program.buffers.push_back({BufferKind::Arena, plan_.buffer(used.buffer).bytes, 0, -1, op.domain});
      op.outputs.push_back({static_cast<int>(plan_.program.buffers.size()) - 1, Access::Write, -1});
      plan_.program.ops.push_back(std::move(op));
      added_.resize(static_cast<std::size_t>(plan_.ops()));
    }
    const int made = copy->second;
    plan_.op(read.op).inputs[static_cast<std::size_t>(read.input)] = {plan_.op(made).outputs[0].buffer,
                                                                      Access::Read, made};
    plan_.op(read.op).deps.push_back(made);
    read.op = made;
    read.input = 0;
  }

  /// Ops on a cycle or behind one; empty when all edges together have an order.
  std::vector<int> ops_on_cycles() const {
    const auto n = static_cast<std::size_t>(plan_.ops());
    std::vector<std::vector<int>> users(n);
    std::vector<int> missing(n, 0);
    for (int op = 0; op < plan_.ops(); ++op) {
      for (const std::vector<int>* deps :
           {&std::as_const(plan_).op(op).deps, &added_[static_cast<std::size_t>(op)]}) {
        for (const int dep : *deps) users[static_cast<std::size_t>(dep)].push_back(op);
        missing[static_cast<std::size_t>(op)] += static_cast<int>(deps->size());
      }
    }
    std::vector<int> ready;
    for (int op = 0; op < plan_.ops(); ++op)
      if (missing[static_cast<std::size_t>(op)] == 0) ready.push_back(op);
    while (!ready.empty()) {
      const int op = ready.back();
      ready.pop_back();
      for (const int user : users[static_cast<std::size_t>(op)])
        if (--missing[static_cast<std::size_t>(user)] == 0) ready.push_back(user);
    }
    std::vector<int> left;
    for (int op = 0; op < plan_.ops(); ++op)
      if (missing[static_cast<std::size_t>(op)] != 0) left.push_back(op);
    return left;
  }

  bool copy_reads_of(const std::vector<int>& ops) {
    bool any = false;
    for (std::size_t r = 0; r < plan_.reads.size(); ++r) {
      const VariableRead& read = plan_.reads[r];
      const int variable = plan_.op(read.op).inputs[static_cast<std::size_t>(read.input)].buffer;
      if (read.read == kNoNode || is_copied(read) || !by_variable_.contains(variable)) continue;
      if (!std::binary_search(ops.begin(), ops.end(), read.op)) continue;
      copy_read(r);
      any = true;
    }
    return any;
  }

  [[noreturn]] void refuse_cycle(const std::vector<int>& cycle) const {
    std::string names;
    for (std::size_t i = 0; i < cycle.size() && i < 8; ++i)
      names += (i ? ", " : "") + plan_.program.place(cycle[i]);
    throw InvalidArgument("reads and writes of variables have no order that satisfies the graph: " + names);
  }

  Plan& plan_;
  const int original_ops_;
  std::vector<Writer> writers_;                          // in topological order
  std::map<int, std::vector<std::size_t>> by_variable_;  // buffer to positions in writers_
  Marks before_{0, 0};  // by op: writers that come before it, or are it; ops of the graph only
  std::vector<std::vector<int>> added_;           // by op: further deps
  std::map<std::pair<NodeId, int>, int> copies_;  // read node and variable to the op that copies
};

}  // namespace

void order_variables(Plan& plan) { VariableOrder(plan).run(); }

}  // namespace braid
