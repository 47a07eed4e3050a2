#include "worker/strategies/tensor_text.h"

#include <fmt/format.h>

#include "engine/program/program.h"

namespace braid::worker {
namespace {

const char* kind_text(const TensorSlice& slice) {
  if (slice.rows) return "ROW";
  return slice.whole.shape.rank() > 1 ? "COLUMN" : "with it";
}

/// Of one pass of the step, within a group.
std::string pass_text(const LayoutFlow& flow, bool backward) {
  struct Kind {
    const char* name;
    std::int64_t count = 0, bytes = 0;
  };
  bool seen_together = false;
  Kind sums{"sums"}, scatters{"sums of slices"}, gathers{"gathers"};
  for (const GroupExchange& exchange : flow.exchanges) {
    if (exchange.backward != backward) continue;
    Kind& kind = exchange.from.kind == Layout::Slice ? gathers
                 : exchange.to.kind == Layout::Slice ? scatters
                                                     : sums;
    if (!exchange.together || !seen_together) ++kind.count;
    seen_together = seen_together || exchange.together;
    kind.bytes += exchange.bytes;
  }
  const auto text = [](const Kind& kind) {
    return fmt::format("{} {} of {}", kind.count, kind.name, amount_text(kind.bytes));
  };
  return fmt::format("  {}: {}, {}{}\n", backward ? "backward" : "forward", text(sums), text(gathers),
                     scatters.count == 0 ? "" : ", " + text(scatters));
}

}  // namespace

std::string amount_text(std::int64_t bytes) {
  const double kib = static_cast<double>(bytes) / 1024;
  return kib < 1024 ? fmt::format("{:.1f} KiB", kib) : fmt::format("{:.1f} MiB", kib / 1024);
}

std::string tensor_text(const Mesh& mesh, const TensorPlan* plan, std::int64_t gradient_bytes,
                        const Program& step) {
  std::string text = fmt::format("tensor: {} group{} of {} worker{}", mesh.data, mesh.data == 1 ? "" : "s",
                                 mesh.workers, mesh.workers == 1 ? "" : "s");
  std::int64_t variables = 0, cut = 0, own = 0;
  for (const ProgramVariable& variable : step.variables)
    variables += variable.shape.elements() * static_cast<std::int64_t>(dtype_size(variable.dtype));
  std::string layers;
  for (const TensorSlice& slice : plan ? plan->slices : std::vector<TensorSlice>{}) {
    const std::int64_t bytes = slice.whole.shape.elements() * std::int64_t{sizeof(float)};
    cut += bytes;
    own += bytes / slice.parts;
    layers += fmt::format("  {:<8} {} {} -> {}\n", kind_text(slice), slice.whole.name,
                          slice.whole.shape.to_string(), slice.local_shape().to_string());
  }
  text += fmt::format(", {} variables cut: {} of weights, {} a worker\n",
                      plan ? plan->slices.size() : std::size_t{0}, amount_text(cut), amount_text(own));
  text += layers;
  if (plan) text += pass_text(plan->flow, false) + pass_text(plan->flow, true);
  if (mesh.data > 1) text += fmt::format("  between groups: gradients of {}\n", amount_text(gradient_bytes));
  text += fmt::format(
      "  a worker: variables with slots {}, arena {}\n", amount_text(variables),
      amount_text(static_cast<std::int64_t>(step.stats.arena_bytes + step.stats.device_arena_bytes)));
  return text;
}

}  // namespace braid::worker
