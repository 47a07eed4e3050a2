#include "worker/step/collectives_hash.h"

#include <span>
#include <string>
#include <string_view>

#include "base/init.h"
#include "engine/program/program.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {
namespace {

/// Those of its values that have one size on all ranks.
std::span<const Operand> alike(const ProgramOp& op) {
  const std::string_view name = op.op;
  // What comes from owners arrives alike; what they read is their part of a table.
  if (name == "braid.FromOwners" || name == "braid.RowsFromOwners") return op.outputs;
  // Rows of each rank's batch, and statistics of it; only an owner reads the others' lists.
  if (name == "braid.AllGatherRows" || name.starts_with("braid.SyncBatchNorm") ||
      name == "braid.SumsToOwners" || name == "braid.SendFromOwners")
    return {};
  return op.inputs;
}

}  // namespace

std::uint64_t collectives_hash(const Program& program, const Strategy& strategy) {
  std::string text;
  for (const ProgramVariable& variable : program.variables)
    text += "variable " + variable.name + " " + std::string(dtype_name(variable.dtype)) +
            strategy.whole_shape(variable.name, variable.shape).to_string() + "\n";
  for (const ProgramStream& stream : program.streams) {
    if (stream.lane != Lane::Comm) continue;
    for (const Instruction& instruction : stream.instructions) {
      if (instruction.kind != Instruction::Kind::Run) continue;
      const ProgramOp& op = program.ops[static_cast<std::size_t>(instruction.op)];
      text += op.op + " " + op.name;
      for (const Operand& operand : alike(op))
        if (operand.buffer >= 0)
          text += " " + std::to_string(program.buffers[static_cast<std::size_t>(operand.buffer)].bytes);
      text += "\n";
    }
  }
  return stable_hash(text);
}

}  // namespace braid::worker
