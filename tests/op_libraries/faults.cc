// Op libraries that loading must refuse; FAULT_x chooses one.
#ifdef FAULT_other_contract
// As if it were compiled against the headers of another version.
#include "engine/ir/op_contract.h"
#undef BRAID_OP_CONTRACT
#define BRAID_OP_CONTRACT "0.0.1 0000000000000000"
#endif
#include "engine/ir/op_library_entry.h"

namespace {

using namespace braid;

OpDef identity(const char* name) {
  OpDef def;
  def.name = name;
  def.traits = computes();
  def.min_inputs = def.max_inputs = 1;
  def.infer = [](InferContext& c) { c.output(c.dtype(0), c.shape(0)); };
  def.no_gradient_reason = "it is a test's";
  def.cpu = [](const PrepareContext&) { return PreparedKernel{}; };
  return def;
}

[[maybe_unused]] void register_faulty(OpRegistry& registry) {
#if defined(FAULT_taken_name)
  registry.add(identity("FaultyFirst"));
  registry.add(identity("MatMul"));
#elif defined(FAULT_braids_name)
  registry.add(identity("braid.Mine"));
#elif defined(FAULT_says_too_little)
  OpDef def = identity("FaultySilent");
  def.traits = {};
  registry.add(std::move(def));
#elif defined(FAULT_throws)
  registry.add(identity("FaultyTwice"));
  registry.add(identity("FaultyTwice"));
#elif defined(FAULT_other_contract)
  registry.add(identity("FaultyOld"));
#endif
}

}  // namespace

BRAID_OP_LIBRARY(register_faulty)
