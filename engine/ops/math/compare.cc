// Comparisons and logical ops of two inputs that broadcast, a row an op. The output is bool, so nothing is
// differentiable.
#include "engine/ops/common/binary_loop.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/math/compare_formulas.h"

namespace braid {
namespace {

using namespace compare;

struct Row {
  const char* name;
  BinaryLoops loops;
};

constexpr Row kRows[] = {
    {"Equal", binary_numbers_and_bool<Equal>()},
    {"NotEqual", binary_numbers_and_bool<NotEqual>()},
    {"Less", binary_numbers<Less>()},
    {"LessEqual", binary_numbers<LessEqual>()},
    {"Greater", binary_numbers<Greater>()},
    {"GreaterEqual", binary_numbers<GreaterEqual>()},
    {"LogicalAnd", binary_bools<LogicalAnd>()},
    {"LogicalOr", binary_bools<LogicalOr>()},
};

void infer(InferContext& c, const Row& row) {
  // Strings are compared at compile time (engine/ir/string_ids.h).
  const std::string_view name = row.name;
  const bool is_text = c.dtype(0) == DType::String && (name == "Equal" || name == "NotEqual");
  if (!is_text && !row.loops.of(c.dtype(0))) c.fail("does not take " + std::string(dtype_name(c.dtype(0))));
  infer_broadcast_bool(c);
}

}  // namespace

void register_compare(OpRegistry& registry) {
  for (const Row& row : kRows) {
    OpDef def;
    def.name = row.name;
    def.min_inputs = def.max_inputs = 2;
    def.infer = [&row](InferContext& c) { infer(c, row); };
    def.no_gradient_reason = "the output is bool";
    def.cost = cost_per_output(1);
    def.cpu = [&row](const PrepareContext& c) { return prepare_binary(c, row.loops); };
    registry.add(std::move(def));
  }
}

}  // namespace braid
