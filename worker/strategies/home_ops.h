// Ops of a step whose worker is the home of its sparse tables' rows (home_tables.h), beside that of
// home_keys.h:
//
//   braid.PsHomeRows(keys, counts, of each group) -> planned: plans the step and asks for what it lacks
//   braid.PsHomeArrive(planned) -> ready, votes: that is here. An op of its own, as an asynchronous one waits
//     for itself of the step before, and pulls of two steps may be under way
//   braid.PsHomeSwap(ready, places of each list, variables) -> rows of each list, done: engine/ops/common/
//     home_swap.h; attributes `group`, `lists`, `tables`, `widths`. With `capacities` the places of all lists
//     are one input, and these are [ranks, capacity], of which `ranks` is an attribute, too
//   braid.PsHomeLeave(done of each group): sends what made room
#pragma once

namespace braid {
class OpRegistry;
}

namespace braid::worker {

void register_home_ops(OpRegistry& registry);

}  // namespace braid::worker
