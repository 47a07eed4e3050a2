#include "engine/schedule/segments.h"

#include <algorithm>
#include <set>

namespace braid {
namespace {

/// The number of the segment of each device op, and for a host op that of the last segment before it (-1:
/// none). A device op is in a later segment than every host op that it depends on, and never before its
/// stream's previous op.
std::vector<int> segment_levels(const Program& program) {
  std::vector<int> level(program.ops.size(), -1), stream_level(program.streams.size(), -1);
  for (std::size_t op = 0; op < program.ops.size(); ++op) {
    const auto stream = static_cast<std::size_t>(program.ops[op].stream);
    const bool device = program.streams[stream].domain == Domain::Device;
    int at = std::max(device ? 0 : -1, stream_level[stream]);
    for (const int dep : program.ops[op].deps) {
      const auto& from =
          program.streams[static_cast<std::size_t>(program.ops[static_cast<std::size_t>(dep)].stream)];
      at = std::max(at,
                    level[static_cast<std::size_t>(dep)] + (device && from.domain == Domain::Host ? 1 : 0));
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
  std::vector<Segment> device;
  for (int s = 0; s < static_cast<int>(program.streams.size()); ++s) {
    const ProgramStream& stream = program.streams[static_cast<std::size_t>(s)];
    const int length = static_cast<int>(stream.instructions.size());
    if (length == 0) continue;
    if (stream.domain == Domain::Host) {
      host.ranges.push_back({s, 0, length});
      continue;
    }
    int begin = 0;
    for (int i = 0; i < length; ++i) {
      const Instruction& instruction = stream.instructions[static_cast<std::size_t>(i)];
      if (instruction.kind != Instruction::Kind::Run) continue;  // belongs to the op behind it
      const auto at = static_cast<std::size_t>(level[static_cast<std::size_t>(instruction.op)]);
      if (device.size() <= at) device.resize(at + 1);
      auto& ranges = device[at].ranges;
      if (ranges.empty() || ranges.back().stream != s)
        ranges.push_back({s, begin, i + 1});
      else
        ranges.back().end = i + 1;
      begin = i + 1;
    }
  }
  for (Segment& segment : device) {
    segment.domain = Domain::Device;
    std::set<Segment::HeadWait> heads;
    for (const Segment::Range& range : segment.ranges) {
      const auto& list = program.streams[static_cast<std::size_t>(range.stream)].instructions;
      for (int i = range.begin; i < range.end; ++i) {
        const Instruction& instruction = list[static_cast<std::size_t>(i)];
        const ProgramOp& op = program.ops[static_cast<std::size_t>(instruction.op)];
        if (instruction.kind != Instruction::Kind::Run && op.domain == Domain::Host)
          heads.insert({instruction.op, instruction.kind == Instruction::Kind::WaitPrevious});
      }
    }
    segment.head_waits.assign(heads.begin(), heads.end());
    if (!segment.ranges.empty()) program.segments.push_back(std::move(segment));
  }
  if (!host.ranges.empty()) program.segments.push_back(std::move(host));
}

}  // namespace braid
