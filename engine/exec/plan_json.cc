#include "engine/exec/plan_json.h"

#include <fmt/format.h>

#include <iterator>
#include <set>
#include <string_view>

#include "engine/exec/json_text.h"

namespace braid {
namespace {

int kind_number(Instruction::Kind kind) {
  switch (kind) {
    case Instruction::Kind::Run:
      return 0;
    case Instruction::Kind::Wait:
      return 1;
    case Instruction::Kind::WaitPrevious:
      return 2;
  }
  return 0;
}

}  // namespace

std::string plan_json(const Program& program) {
  std::string out;
  auto to = std::back_inserter(out);
  const ProgramStats& stats = program.stats;
  fmt::format_to(to, R"({{"policy":{},"step_us":{:.3f},"serial_us":{:.3f},"critical_us":{:.3f},"waits":{})",
                 json_text(stream_policy_name(program.policy)), stats.step_us, stats.serial_us,
                 stats.critical_path_us, stats.waits_issued);
  out += ",\"streams\":[";
  for (std::size_t s = 0; s < program.streams.size(); ++s) {
    const ProgramStream& stream = program.streams[s];
    fmt::format_to(to, R"({}{{"name":{},"cause":{},"items":[)", s ? "," : "", json_text(stream.name),
                   json_text(stream.cause));
    bool first = true;
    for (const Instruction& each : stream.instructions) {
      fmt::format_to(to, "{}[{},{}]", first ? "" : ",", kind_number(each.kind), each.op);
      first = false;
    }
    out += "]}";
  }
  out += "],\"ops\":[";
  const std::set<int> critical(stats.critical_path.begin(), stats.critical_path.end());
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const ProgramOp& op = program.ops[i];
    fmt::format_to(to, R"({}{{"name":{},"op":{},"stream":{},"cost_us":{:.3f}{}}})", i ? "," : "",
                   json_text(op.name), json_text(op.op), op.stream, op.cost_us,
                   critical.contains(static_cast<int>(i)) ? ",\"critical\":true" : "");
  }
  return out + "]}\n";
}

}  // namespace braid
