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
  const char* formula;

  bool compares_equality() const { return loops.of(DType::Bool) && loops.of(DType::Float32); }
};

constexpr Row kRows[] = {
    {"Equal", binary_numbers_and_bool<Equal>(), "a == b"},
    {"NotEqual", binary_numbers_and_bool<NotEqual>(), "a != b"},
    {"Less", binary_numbers<Less>(), "a < b"},
    {"LessEqual", binary_numbers<LessEqual>(), "a <= b"},
    {"Greater", binary_numbers<Greater>(), "a > b"},
    {"GreaterEqual", binary_numbers<GreaterEqual>(), "a >= b"},
    {"LogicalAnd", binary_bools<LogicalAnd>(), "a && b"},
    {"LogicalOr", binary_bools<LogicalOr>(), "a || b"},
};

void infer(InferContext& c, const Row& row) {
  // Strings are compared at compile time (engine/ir/string_ids.h).
  const bool is_text = c.dtype(0) == DType::String && row.compares_equality();
  if (!is_text && !row.loops.of(c.dtype(0))) c.fail("does not take " + std::string(dtype_name(c.dtype(0))));
  infer_broadcast_bool(c);
}

fusion::ElementLoop fused_loop(std::string_view op, std::span<const DType> operands, DType,
                               const fusion::Parameters&) {
  const auto* const row =
      std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return r.name == op; });
  return row == std::end(kRows) ? fusion::ElementLoop{} : fused_binary_loop(row->loops, operands);
}

}  // namespace

void register_compare(OpRegistry& registry) {
  for (const Row& row : kRows) {
    OpDef def;
    def.name = row.name;
    def.traits = broadcasts({row.formula});
    if (row.compares_equality()) def.traits = def.traits.on_string_ids();
    if (!row.loops.of(DType::Float32)) def.traits = def.traits.type_attrs({});  // bools only
    def.min_inputs = def.max_inputs = 2;
    def.infer = [&row](InferContext& c) { infer(c, row); };
    def.no_gradient_reason = "the output is bool";
    def.cost = cost_per_output(1);
    def.cpu = [&row](const PrepareContext& c) { return prepare_binary(c, row.loops); };
    registry.add(std::move(def));
    fusion::rules().add(row.name, {.loop = fused_loop});
  }
}

}  // namespace braid
