// Some rows of a table that lie apart, the hot ones: which of a batch's ids name them, and their values.
//   braid.SplitHotIds(ids [...]) -> cold [...], hot [...], both of the ids' type: the ids whose rows are in
//   the
//     table, -1 in the place of others; and the rows of the hot ids among the hot ones, -1 for others. A
//     negative id is -1 in both. Attribute hot (ints): the hot ids, rising.
//   braid.HotRows(hot rows (a variable [h, row...]), rows [..., row...], ids [...]) -> rows, with the hot row
//   of
//     each id that is not negative in its place. An id beyond the hot rows is InvalidArgument.
#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <vector>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/index_groups.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/row_sums.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

using Ids = std::vector<std::int64_t>;

/// Places in a rising list, by open addressing: less than half of the slots are taken.
class Places {
 public:
  explicit Places(const Ids& ids) : slots_(std::bit_ceil(2 * ids.size() + 2), Slot{-1, -1}) {
    shift_ = 64 - std::countr_zero(slots_.size());
    for (std::size_t i = 0; i < ids.size(); ++i)
      slots_[slot_of(ids[i])] = {ids[i], static_cast<std::int64_t>(i)};
  }
  /// -1: it is not there. REQUIRES: id >= 0.
  std::int64_t of(std::int64_t id) const { return slots_[slot_of(id)].place; }

 private:
  struct Slot {
    std::int64_t id, place;
  };
  std::size_t slot_of(std::int64_t id) const {
    std::size_t at = static_cast<std::uint64_t>(id) * 0x9e3779b97f4a7c15U >> shift_;
    while (slots_[at].id >= 0 && slots_[at].id != id) at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  std::vector<Slot> slots_;
  int shift_ = 0;
};

void infer_split(InferContext& c) {
  require_index_dtype(c, 0);
  const auto hot = c.attr("hot", Ids{});
  if (!hot.empty() && hot.front() < 0) c.fail("hot ids must not be negative");
  if (std::ranges::adjacent_find(hot, std::greater_equal{}) != hot.end()) c.fail("hot ids must rise");
  c.output(c.dtype(0), c.shape(0));
  c.output(c.dtype(0), c.shape(0));
}

PreparedKernel prepare_split(const PrepareContext& c) {
  const std::int64_t n = c.inputs[0].shape.elements();
  const auto places = std::make_shared<const Places>(c.attr("hot", Ids{}));
  return with_index("braid.SplitHotIds", c.inputs[0].dtype, [&]<class I>() {
    return serial_kernel([=](const KernelArgs& a) {
      const I* const ids = a.in<I>(0);
      I *const cold = a.out<I>(0), *const hot = a.out<I>(1);
      for (std::int64_t k = 0; k < n; ++k) {
        const std::int64_t place = ids[k] < 0 ? -1 : places->of(static_cast<std::int64_t>(ids[k]));
        hot[k] = static_cast<I>(place);
        cold[k] = ids[k] < 0 || place >= 0 ? I{-1} : ids[k];
      }
    });
  });
}

void infer_rows(InferContext& c) {
  require_index_dtype(c, 2);
  const Shape &table = c.shape(0), &rows = c.shape(1), &ids = c.shape(2);
  if (table.has_rank() && rows.has_rank() && ids.has_rank() && rows.rank() != ids.rank() + table.rank() - 1)
    c.fail("rows " + rows.to_string() + " are not of ids " + ids.to_string());
  c.output(c.dtype(1), rows);
}

PreparedKernel prepare_rows(const PrepareContext& c) {
  const Shape& table = c.inputs[0].shape;
  const std::int64_t n = c.inputs[2].shape.elements(), hot = table[0],
                     width = hot == 0 ? 0 : table.elements() / hot;
  const std::size_t row_bytes = static_cast<std::size_t>(width) * dtype_size(c.inputs[1].dtype);
  return with_index("braid.HotRows", c.inputs[2].dtype, [&]<class I>() {
    return serial_kernel([=, pool = &c.pool, place = place_of(c.node)](const KernelArgs& a) {
      const I* const ids = a.in<I>(2);
      check_segment_ids(place, ids, n, hot);
      const bool in_place = a.inputs[1] == a.outputs[0];
      pool->parallel_range(n, row_grain(width), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t k = begin; k < end; ++k) {
          char* const to = a.out<char>(0) + static_cast<std::size_t>(k) * row_bytes;
          if (ids[k] >= 0)
            std::memcpy(to, a.in<char>(0) + static_cast<std::size_t>(ids[k]) * row_bytes, row_bytes);
          else if (!in_place)
            std::memcpy(to, a.in<char>(1) + static_cast<std::size_t>(k) * row_bytes, row_bytes);
        }
      });
    });
  });
}

Cost split_cost(const InferContext& c, std::span<const OutputInfo> outputs) {
  return {0, 3 * known_bytes(outputs[0]) + 16 * known_elements(c.shape(0))};
}

Cost rows_cost(const InferContext& c, std::span<const OutputInfo> outputs) {
  return {0, 2 * known_bytes(outputs[0]) + known_bytes({c.dtype(2), c.shape(2)})};
}

}  // namespace

void register_hot_rows(OpRegistry& registry) {
  registry.add({.name = "braid.SplitHotIds",
                .traits = computes().output_lists({{"cold"}, {"hot"}}),
                .min_inputs = 1,
                .max_inputs = 1,
                .infer = infer_split,
                .no_gradient_reason = "ids have no gradient",
                .cost = split_cost,
                .cpu = prepare_split});
  registry.add({.name = "braid.HotRows",
                .traits = moves(),
                .min_inputs = 3,
                .max_inputs = 3,
                .infer = infer_rows,
                .no_gradient_reason = "strategies make it, after gradients are made",
                .cost = rows_cost,
                .cpu = prepare_rows,
                .in_place = {{0, 1}},
                .handles = {Access::Read}});
}

}  // namespace braid
