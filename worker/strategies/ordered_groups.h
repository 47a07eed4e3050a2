// The groups of tables that an op of ordered rows works on. Thread rule: const after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/ir/op.h"
#include "ps/client/ps_client.h"

namespace braid::worker {

/// The groups of a pull or push: which tables, and where a kernel finds their keys.
class OrderedGroups {
 public:
  explicit OrderedGroups(const PrepareContext& c) {
    using Ints = std::vector<std::int64_t>;
    const Ints tables = c.attr("tables", Ints{}), sizes = c.attr("group_tables", Ints{});
    groups_.resize(sizes.size());
    auto table = tables.begin();
    for (std::size_t g = 0; g < sizes.size(); ++g)
      for (std::int64_t t = 0; t < sizes[g]; ++t) groups_[g].tables.push_back(static_cast<int>(*table++));
    for (std::size_t g = 0; g < groups_.size(); ++g)
      groups_[g].counts = static_cast<std::size_t>(c.inputs[2 * g + 1].shape.elements());
  }
  std::size_t size() const { return groups_.size(); }
  /// They live as long as this.
  ps::OrderedKeys keys(std::size_t g, const KernelArgs& a) const {
    return {groups_[g].tables,
            static_cast<const std::int64_t*>(a.inputs[2 * g]),
            {static_cast<const std::int64_t*>(a.inputs[2 * g + 1]), groups_[g].counts}};
  }

 private:
  struct Group {
    std::vector<int> tables;
    std::size_t counts = 0;
  };
  std::vector<Group> groups_;
};

}  // namespace braid::worker
