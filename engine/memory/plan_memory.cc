// Arena offsets. Two buffers may share bytes only if every use of one is known to be complete when the
// other's writer starts: in the partial order of streams and events, not in the order in which ops are
// listed. An output takes over its input's buffer where the op allows it and everybody else who used the
// input is known to be done.
#include <algorithm>
#include <numeric>

#include "base/bit_matrix.h"
#include "base/error.h"
#include "engine/ir/op.h"
#include "engine/memory/arena_plan.h"
#include "engine/memory/passes.h"

namespace braid {
namespace {

// Pairs are looked at one by one, so the smallest buffers of a huge program get bytes of their own.
constexpr std::size_t kMostShared = 20000;

class MemoryPlan {
 public:
  explicit MemoryPlan(Plan& plan) : plan_(plan), users_(plan.program.buffers.size()) {}

  void run() {
    for (int op = 0; op < plan_.ops(); ++op) collect_users(op);
    for (int op = 0; op < plan_.ops(); ++op)
      if (plan_.op(op).kind == OpKind::Kernel && !plan_.op(op).async) reuse_inputs(op);
    number_slots();
    ProgramStats& stats = plan_.program.stats;
    stats.arena_bytes = place(Domain::Host, 0);
    stats.device_arena_bytes = place(Domain::Device, stats.arena_bytes);
  }

 private:
  std::vector<int>& users(int buffer) { return users_[static_cast<std::size_t>(buffer)]; }

  void collect_users(int op) {
    for (const auto* operands : {&plan_.op(op).inputs, &plan_.op(op).outputs}) {
      for (const Operand& operand : *operands) {
        if (operand.buffer < 0 || operand.access == Access::None) continue;
        if (users(operand.buffer).empty() || users(operand.buffer).back() != op)
          users(operand.buffer).push_back(op);
      }
    }
  }

  void reuse_inputs(int op) {
    const Node& node = *plan_.node_of(op);
    for (const auto& [output, input] : node.op->in_place) {
      const auto o = static_cast<std::size_t>(output), i = static_cast<std::size_t>(input);
      if (o >= plan_.op(op).outputs.size() || i >= plan_.op(op).inputs.size()) continue;
      const int from = plan_.op(op).inputs[i].buffer, to = plan_.op(op).outputs[o].buffer;
      if (from >= 0 && to != from && can_take_over(op, from, to)) take_over(op, from, to);
    }
  }

  bool can_take_over(int op, int from, int to) {
    const ProgramBuffer &a = plan_.buffer(from), &b = plan_.buffer(to);
    if (a.kind != BufferKind::Arena || a.domain != b.domain || a.bytes != b.bytes || a.bytes == 0)
      return false;
    if (users(to).front() != op) return false;  // another of its inputs was taken over already
    const auto& inputs = plan_.op(op).inputs;
    const auto uses =
        std::count_if(inputs.begin(), inputs.end(), [&](const Operand& in) { return in.buffer == from; });
    if (uses != 1) return false;
    return std::all_of(users(from).begin(), users(from).end(),
                       [&](int user) { return user == op || plan_.clocks.knows(plan_.clocks.of(op), user); });
  }

  /// Everything that used `to` uses `from`, which a fetched output makes a slot of the step.
  void take_over(int op, int from, int to) {
    if (plan_.buffer(to).kind == BufferKind::Slot) {
      plan_.buffer(from).kind = BufferKind::Slot;
      for (ProgramFetch& fetch : plan_.program.fetches)
        if (fetch.buffer == to) fetch.buffer = from;
    }
    for (const int user : users(to)) {
      for (auto* operands : {&plan_.op(user).inputs, &plan_.op(user).outputs})
        for (Operand& operand : *operands)
          if (operand.buffer == to) operand.buffer = from;
      if (user != op) users(from).push_back(user);
    }
    users(to).clear();
    plan_.buffer(to).kind = BufferKind::Arena;
    plan_.buffer(to).bytes = 0;
  }

  void number_slots() {
    int next = 0;
    for (ProgramBuffer& buffer : plan_.program.buffers)
      if (buffer.kind == BufferKind::Slot) buffer.index = next++;
  }

  /// Offsets must not wrap around: then values would overwrite each other. `items` are sorted, the largest
  /// first.
  void check_sum(const std::vector<int>& items) {
    constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 60;
    std::uint64_t sum = 0;
    for (const int b : items) {
      const std::uint64_t bytes = align_up(std::min(plan_.buffer(b).bytes, kMostBytes));
      if (sum > kMostBytes - bytes)
        throw OutOfMemory(plan_.program.place(users(items.front()).front()) +
                          ": it and others take more than " + std::to_string(kMostBytes) + " bytes");
      sum += bytes;
    }
  }

  /// Gives the domain's buffers their offsets from `base` on; returns the bytes that they take.
  std::uint64_t place(Domain domain, std::uint64_t base) {
    std::vector<int> items;
    for (int b = 0; b < static_cast<int>(plan_.program.buffers.size()); ++b)
      if (plan_.buffer(b).kind == BufferKind::Arena && plan_.buffer(b).domain == domain &&
          plan_.buffer(b).bytes != 0)
        items.push_back(b);
    std::stable_sort(items.begin(), items.end(),
                     [&](int a, int b) { return plan_.buffer(a).bytes > plan_.buffer(b).bytes; });
    check_sum(items);
    const std::size_t shared = std::min(items.size(), kMostShared);
    const std::vector<int> sharing(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(shared));
    std::vector<std::uint64_t> sizes;
    for (const int b : sharing) sizes.push_back(plan_.buffer(b).bytes);
    const ArenaPlan arena = plan_arena(sizes, may_share(sharing));
    std::uint64_t end = arena.bytes;
    for (std::size_t i = 0; i < items.size(); ++i) {
      plan_.buffer(items[i]).offset = base + (i < shared ? arena.offsets[i] : end);
      if (i >= shared) end += align_up(plan_.buffer(items[i]).bytes);
    }
    if (items.size() > shared)
      plan_.note("the smallest " + std::to_string(items.size() - shared) + " buffers share no bytes; only " +
                 std::to_string(shared) + " are compared");
    return align_up(end);
  }

  /// Bit (c, b): all users of b are complete when the writer of c starts, or the other way round.
  BitMatrix may_share(const std::vector<int>& items) {
    BitMatrix dead(items.size());
    dead.fill();
    for (int stream = 0; stream < plan_.clocks.streams(); ++stream) restrict_by_stream(items, stream, dead);
    restrict_by_async(items, dead);
    dead.make_symmetric();
    return dead;
  }

  const Clocks::Word* start_of(int item) { return plan_.clocks.of(users(item).front()); }

  /// Row by row, in the order of how far writers know the stream: a growing set of buffers it is done with.
  void restrict_by_stream(const std::vector<int>& items, int stream, BitMatrix& dead) {
    const std::size_t n = items.size();
    std::vector<Clocks::Word> last(n, 0);  // ops of the stream that must have passed
    bool any = false;
    for (std::size_t b = 0; b < n; ++b) {
      for (const int user : users(items[b])) {
        if (plan_.op(user).stream != stream || plan_.op(user).async) continue;
        last[b] = std::max(last[b], plan_.clocks.position(user) + 1);
        any = true;
      }
    }
    if (!any) return;
    const auto known = [&](std::uint32_t c) { return start_of(items[c])[stream]; };
    std::vector<std::uint32_t> by_last(n), by_known(n);
    std::iota(by_last.begin(), by_last.end(), 0);
    by_known = by_last;
    std::sort(by_last.begin(), by_last.end(), [&](auto a, auto b) { return last[a] < last[b]; });
    std::sort(by_known.begin(), by_known.end(), [&](auto a, auto b) { return known(a) < known(b); });
    std::vector<std::uint64_t> done(dead.words(), 0);
    std::size_t next = 0;
    for (const std::uint32_t c : by_known) {
      for (; next < n && last[by_last[next]] <= known(c); ++next)
        done[by_last[next] / 64] |= std::uint64_t{1} << (by_last[next] % 64);
      std::uint64_t* row = dead.row(c);
      for (std::size_t w = 0; w < done.size(); ++w) row[w] &= done[w];
    }
  }

  void restrict_by_async(const std::vector<int>& items, BitMatrix& dead) {
    std::vector<std::vector<std::uint32_t>> used_by(plan_.program.ops.size());
    std::vector<int> async;
    for (std::uint32_t b = 0; b < items.size(); ++b) {
      for (const int user : users(items[b])) {
        if (!plan_.op(user).async) continue;
        if (used_by[static_cast<std::size_t>(user)].empty()) async.push_back(user);
        used_by[static_cast<std::size_t>(user)].push_back(b);
      }
    }
    for (std::size_t c = 0; c < items.size(); ++c)
      for (const int op : async)
        if (!plan_.clocks.knows(start_of(items[c]), op))
          for (const std::uint32_t b : used_by[static_cast<std::size_t>(op)]) dead.clear(c, b);
  }

  Plan& plan_;
  std::vector<std::vector<int>> users_;  // by buffer, ops in issue order; the first writes it
};

}  // namespace

void plan_memory(Plan& plan) { MemoryPlan(plan).run(); }

}  // namespace braid
