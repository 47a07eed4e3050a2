// The streams' instruction lists: each op's waits in front of it, those on the step before first, since they
// are the older ones.
#include "engine/schedule/passes.h"

namespace braid {

void write_instructions(Plan& plan) {
  Program& program = plan.program;
  std::vector<char> signals(program.ops.size(), 0);
  for (int op = 0; op < plan.ops(); ++op) {
    auto& list = program.streams[static_cast<std::size_t>(plan.op(op).stream)].instructions;
    const auto wait_for = [&](Instruction::Kind kind, const std::vector<int>& ops) {
      for (const int other : ops) {
        list.push_back({kind, other});
        signals[static_cast<std::size_t>(other)] = 1;
      }
    };
    wait_for(Instruction::Kind::WaitPrevious, plan.previous_waits[static_cast<std::size_t>(op)]);
    wait_for(Instruction::Kind::Wait, plan.waits[static_cast<std::size_t>(op)]);
    list.push_back({Instruction::Kind::Run, op});
    // Completion is counted even where nobody in the program waits: the step ends when it has come.
    if (plan.op(op).async) signals[static_cast<std::size_t>(op)] = 1;
  }
  for (int op = 0; op < plan.ops(); ++op)
    if (signals[static_cast<std::size_t>(op)]) plan.op(op).event = program.events++;
  program.stats.events = program.events;
}

}  // namespace braid
