#include <algorithm>
#include <set>

#include "engine/ops/common/row_entries.h"
#include "tests/engine/ops/op_cases.h"

namespace braid::testing {
namespace {

using Sizes = std::vector<std::int64_t>;

/// As braid.DistinctRows makes them.
Tensor entries_of(const std::vector<Tensor>& ids) {
  Sizes entries;
  EntryBase base;
  for (const Tensor& list : ids) {
    const std::vector<double> numbers = to_doubles(list);
    const std::set<double> distinct(numbers.begin(), numbers.end());
    const auto first = std::ssize(entries);
    for (std::size_t k = 0; k < numbers.size(); ++k) {
      const auto place = std::distance(distinct.begin(), distinct.find(numbers[k]));
      entries.push_back((base.row + place) << kEntryPositionBits |
                        (base.entry + static_cast<std::int64_t>(k)));
    }
    std::sort(entries.begin() + first, entries.end());
    base.pass(std::ssize(numbers), std::ssize(numbers));
  }
  return Tensor::from<std::int64_t>(Shape{std::ssize(entries)}, entries);
}

/// Of values with so many numbers a row; `lists`: which ids those values have.
OpCase summed(const char* label, const std::vector<Tensor>& ids, const Sizes& lists, const Sizes& widths) {
  OpCase made{.label = label, .inputs = {}, .attrs = {}};
  Sizes sizes;
  for (const Tensor& list : ids) sizes.push_back(list.elements());
  for (std::size_t v = 0; v < lists.size(); ++v)
    made.inputs.push_back(converted(
        random_f64({sizes[static_cast<std::size_t>(lists[v])], widths[v]}, 100 + v), DType::Float32));
  made.inputs.push_back(entries_of(ids));
  made.attrs = {{kRunSizes, sizes}, {kRunLists, lists}, {"fill", true}};
  return made;
}

}  // namespace

// Runs on both sides of those that are summed in parts, and widths of lanes and packs.
BRAID_OP_CASES(sum_runs) {
  const auto add = [&](OpCase made) { table.add("braid.SumRuns", std::move(made)); };
  add(summed("one list", {axes({4, 0, 4, 1, 0, 0})}, {0}, {3}));
  add(summed("two of one list", {axes({4, 0, 4, 1}), axes({1, 1, 0})}, {0, 1, 0, 1}, {16, 16, 1, 1}));
  add(summed("not of all lists", {axes({4, 0}), axes({1, 1, 0}), axes({0, 0})}, {0, 2}, {4, 4}));
  add(summed("no values", {i64({0}, {}), axes({0, 0})}, {0, 1}, {8, 8}));
  add(summed("long runs", {random_i64({5000}, 1, 0, 3), random_i64({3000}, 2, 0, 200)}, {0, 1}, {16, 16}));
  add(summed("one run", {random_i64({4097}, 3, 0, 1)}, {0}, {33}));
  add(summed("wide rows", {random_i64({300}, 4, 0, 20)}, {0}, {260}));
  std::vector<Tensor> ids;
  Sizes lists, widths;
  for (int l = 0; l < 60; ++l) {
    ids.push_back(random_i64({40 + l}, static_cast<std::uint64_t>(l), 0, 10 + l));
    lists.push_back(l);
    widths.push_back(8);
  }
  add(summed("many lists", ids, lists, widths));
}

}  // namespace braid::testing
