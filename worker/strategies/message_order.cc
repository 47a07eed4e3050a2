#include "worker/strategies/message_order.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "engine/program/program.h"
#include "worker/strategies/group_ops.h"
#include "worker/strategies/pipeline_ops.h"

namespace braid::worker {
namespace {

std::string text_of(const OutputInfo& info) {
  std::string shape = info.shape.to_string();
  std::erase(shape, ' ');
  return std::string(dtype_name(info.dtype)) + shape;
}

CommStep step_of(const Program& program, const ProgramOp& op) {
  const Node& node = program.graph.node(op.node);
  CommStep step;
  step.node = op.name;
  if (op.op == kSendOp || op.op == kRecvOp) {
    step.kind = op.op == kSendOp ? CommStep::Kind::Send : CommStep::Kind::Recv;
    step.peer = static_cast<int>(node.attrs.require<std::int64_t>(kPeer));
  }
  for (const std::int64_t member : node.attrs.get<std::vector<std::int64_t>>(kMembers, {}))
    step.members.push_back(static_cast<int>(member));
  const auto add = [&](const OutputInfo& info) {
    step.values += (step.values.empty() ? "" : " ") + text_of(info);
  };
  if (step.kind == CommStep::Kind::Recv)
    for (const OutputInfo& info : node.outputs) add(info);
  else
    for (const ValueRef input : node.inputs) add(program.graph.info(input));
  return step;
}

std::string text_of(int rank, const CommStep& step) {
  const char* const what = step.kind == CommStep::Kind::Send   ? "sends to"
                           : step.kind == CommStep::Kind::Recv ? "receives from"
                                                               : "meets all";
  const std::string peer =
      step.kind == CommStep::Kind::Collective ? "" : " rank " + std::to_string(step.peer);
  return fmt::format("rank {} {}{} in '{}' ({})", rank, what, peer, step.node, step.values);
}

class Play {
 public:
  explicit Play(const std::vector<std::vector<CommStep>>& ranks) : ranks_(ranks), next_(ranks.size()) {}

  void run() {
    for (bool moves = true; moves;) {
      moves = meet_all();
      for (int rank = 0; rank < world(); ++rank)
        while (send(rank)) moves = true;
    }
    std::string waits;
    for (int rank = 0; rank < world(); ++rank)
      waits += "\n  " + (head(rank) ? text_of(rank, *head(rank)) : fmt::format("rank {} has ended", rank));
    if (std::any_of(next_.begin(), next_.end(), [&, rank = 0](std::size_t) mutable { return head(rank++); }))
      throw InvalidArgument("the workers of the pipeline would wait for each other without end:" + waits);
  }

 private:
  int world() const { return static_cast<int>(ranks_.size()); }
  const CommStep* head(int rank) const {
    const auto& steps = ranks_[static_cast<std::size_t>(rank)];
    const std::size_t next = next_[static_cast<std::size_t>(rank)];
    return next < steps.size() ? &steps[next] : nullptr;
  }

  /// All that exchange values with each other in this collective say so, and the same ones.
  void check_members(int rank) const {
    const std::vector<int>& members = head(rank)->members;
    if (members != head(0)->members && (members.empty() || head(0)->members.empty())) differ(0, rank);
    if (members.empty()) {
      if (head(rank)->values != head(0)->values) differ(0, rank);
      return;
    }
    if (!std::ranges::count(members, rank))
      throw InvalidArgument(text_of(rank, *head(rank)) + ", which is for other ranks");
    for (const int member : members) {
      if (member < 0 || member >= world())
        throw InvalidArgument(
            fmt::format("{}, with rank {} of {}", text_of(rank, *head(rank)), member, world()));
      if (head(member)->members != members || head(member)->values != head(rank)->values)
        differ(rank, member);
    }
  }

  bool meet_all() {
    for (int rank = 0; rank < world(); ++rank)
      if (!head(rank) || head(rank)->kind != CommStep::Kind::Collective) return false;
    for (int rank = 0; rank < world(); ++rank) {
      if (head(rank)->node != head(0)->node) differ(0, rank);
      check_members(rank);
    }
    for (std::size_t& next : next_) ++next;
    return true;
  }

  bool send(int rank) {
    const CommStep* const sent = head(rank);
    if (!sent || sent->kind == CommStep::Kind::Collective) return false;
    if (sent->peer < 0 || sent->peer >= world() || sent->peer == rank)
      throw InvalidArgument(text_of(rank, *sent) + ", which is no other rank of " + std::to_string(world()));
    if (sent->kind != CommStep::Kind::Send) return false;
    const CommStep* const taken = head(sent->peer);
    if (!taken || taken->kind != CommStep::Kind::Recv || taken->peer != rank) return false;
    if (taken->values != sent->values) differ(rank, sent->peer);
    ++next_[static_cast<std::size_t>(rank)];
    ++next_[static_cast<std::size_t>(sent->peer)];
    return true;
  }

  [[noreturn]] void differ(int a, int b) const {
    throw InvalidArgument("the workers of the pipeline do not fit together: " + text_of(a, *head(a)) +
                          ", but " + text_of(b, *head(b)));
  }

  const std::vector<std::vector<CommStep>>& ranks_;
  std::vector<std::size_t> next_;
};

}  // namespace

std::vector<CommStep> comm_steps(const Program& program) {
  std::vector<CommStep> steps;
  bool found = false;
  for (const ProgramStream& stream : program.streams) {
    if (stream.lane != Lane::Comm) continue;
    std::vector<CommStep> own;
    for (const Instruction& instruction : stream.instructions) {
      const ProgramOp& op = program.ops[static_cast<std::size_t>(instruction.op)];
      if (instruction.kind == Instruction::Kind::Run && op.kind == OpKind::Kernel)
        own.push_back(step_of(program, op));
    }
    if (own.empty()) continue;
    if (found) throw Internal("a step exchanges on several streams");
    found = true;
    steps = std::move(own);
  }
  return steps;
}

void check_message_order(const std::vector<std::vector<CommStep>>& ranks) { Play(ranks).run(); }

std::string comm_steps_text(const std::vector<CommStep>& steps) {
  std::string text;
  for (const CommStep& step : steps)
    text += fmt::format("{}\t{}\t{}\t{}\t{}\n", static_cast<int>(step.kind), step.peer, step.values,
                        step.node, fmt::join(step.members, " "));
  return text;
}

std::vector<CommStep> parse_comm_steps(std::string_view text) {
  std::vector<CommStep> steps;
  const auto number = [&](std::string_view part) {
    int value = 0;
    if (std::from_chars(part.data(), part.data() + part.size(), value).ec != std::errc{})
      throw InvalidArgument("the list of another worker's messages is broken at '" + std::string(part) + "'");
    return value;
  };
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    std::string_view parts[5];
    for (std::string_view& part : parts) {
      part = line.substr(0, line.find('\t'));
      line.remove_prefix(std::min(line.size(), part.size() + 1));
    }
    std::vector<int> members;
    while (!parts[4].empty()) {
      const std::string_view member = parts[4].substr(0, parts[4].find(' '));
      parts[4].remove_prefix(std::min(parts[4].size(), member.size() + 1));
      members.push_back(number(member));
    }
    steps.push_back({static_cast<CommStep::Kind>(number(parts[0])), number(parts[1]), std::string(parts[2]),
                     std::string(parts[3]), std::move(members)});
  }
  return steps;
}

}  // namespace braid::worker
