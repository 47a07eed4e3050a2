#include "engine/passes/segments.h"

#include <algorithm>
#include <set>

namespace braid {
namespace {

/// The number of the segment of each capturable op, and for a host op that of the last segment before it (-1:
/// none). A capturable op is in a later segment than every host op that it depends on, and never before its
/// stream's previous op.
std::vector<int> segment_levels(const Program& program) {
  std::vector<int> level(program.ops.size(), -1), stream_level(program.streams.size(), -1);
  for (std::size_t op = 0; op < program.ops.size(); ++op) {
    const auto stream = static_cast<std::size_t>(program.ops[op].stream);
    const bool captured = program.streams[stream].capturable;
    int at = std::max(captured ? 0 : -1, stream_level[stream]);
    for (const int dep : program.ops[op].deps) {
      const auto& from =
          program.streams[static_cast<std::size_t>(program.ops[static_cast<std::size_t>(dep)].stream)];
      at = std::max(at, level[static_cast<std::size_t>(dep)] + (captured && !from.capturable ? 1 : 0));
    }
    level[op] = stream_level[stream] = at;
  }
  return level;
}

}  // namespace

void cut_segments(Program& program) {
  program.segments.clear();
  const std::vector<int> level = segment_levels(program);
  Segment host;
  std::vector<Segment> captured;
  for (int s = 0; s < static_cast<int>(program.streams.size()); ++s) {
    const ProgramStream& stream = program.streams[static_cast<std::size_t>(s)];
    const int length = static_cast<int>(stream.instructions.size());
    if (length == 0) continue;
    if (!stream.capturable) {
      host.ranges.push_back({s, 0, length});
      continue;
    }
    int begin = 0;
    for (int i = 0; i < length; ++i) {
      const Instruction& instruction = stream.instructions[static_cast<std::size_t>(i)];
      if (instruction.kind != Instruction::Kind::Run) continue;  // belongs to the op behind it
      const auto at = static_cast<std::size_t>(level[static_cast<std::size_t>(instruction.op)]);
      if (captured.size() <= at) captured.resize(at + 1);
      auto& ranges = captured[at].ranges;
      if (ranges.empty() || ranges.back().stream != s)
        ranges.push_back({s, begin, i + 1});
      else
        ranges.back().end = i + 1;
      begin = i + 1;
    }
  }
  for (Segment& segment : captured) {
    segment.capturable = true;
    std::set<int> heads;
    for (const Segment::Range& range : segment.ranges) {
      const auto& list = program.streams[static_cast<std::size_t>(range.stream)].instructions;
      for (int i = range.begin; i < range.end; ++i) {
        const Instruction& instruction = list[static_cast<std::size_t>(i)];
        const ProgramOp& op = program.ops[static_cast<std::size_t>(instruction.op)];
        const bool host_op = !program.streams[static_cast<std::size_t>(op.stream)].capturable;
        if (instruction.kind == Instruction::Kind::Wait && host_op) heads.insert(instruction.op);
      }
    }
    segment.head_waits.assign(heads.begin(), heads.end());
    if (!segment.ranges.empty()) program.segments.push_back(std::move(segment));
  }
  if (!host.ranges.empty()) program.segments.push_back(std::move(host));
}

}  // namespace braid
