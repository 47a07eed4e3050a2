#include "tests/engine/ops/op_cases.h"

namespace braid::testing {
namespace {

struct Sized {
  const char* label;
  std::int64_t steps, rows, units;
  AttrMap attrs = {};
};

// On a device float32 goes the resident way, float64 by steps.
const std::vector<Sized> kAllValues{{"few", 3, 2, 3},
                                    {"reverse", 4, 3, 5, {{"reverse", true}}},
                                    {"one step", 1, 1, 1},
                                    {"no rows", 2, 0, 3},
                                    {"no steps", 0, 2, 3},
                                    {"pieces", 2, 29, 4},
                                    {"whole vectors", 3, 27, 32}};

}  // namespace

BRAID_OP_CASES(recurrent) {
  const auto random = [](Shape shape, std::uint64_t seed) { return random_f64(std::move(shape), seed); };
  for (const Sized& s : kAllValues) {
    const std::int64_t t = s.steps, b = s.rows, h = s.units;
    table.add("braid.Gru", {.label = s.label,
                            .inputs = {random({t, b, 3 * h}, 1), random({3 * h, h}, 2), random({b, h}, 3),
                                       random({3 * h}, 4)},
                            .attrs = s.attrs,
                            .no_gradient_outputs = {1, 2}});
    table.add("braid.Lstm", {.label = s.label,
                             .inputs = {random({t, b, 4 * h}, 1), random({4 * h, h}, 2), random({b, h}, 3),
                                        random({b, h}, 4)},
                             .attrs = s.attrs,
                             .no_gradient_outputs = {1, 2}});
    table.add("braid.GruGrad", {.label = s.label,
                                .inputs = {random({t, b, h}, 1), random({3 * h, h}, 2),
                                           random({t, b, 4 * h}, 3), random({t, b, h}, 4)},
                                .attrs = s.attrs});
    table.add("braid.LstmGrad", {.label = s.label,
                                 .inputs = {random({t, b, h}, 1), random({4 * h, h}, 2),
                                            random({t, b, 5 * h}, 3), random({b, h}, 4), random({b, h}, 5)},
                                 .attrs = s.attrs});
  }
}

}  // namespace braid::testing
