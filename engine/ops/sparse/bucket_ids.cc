// braid.BucketIds(ids..., any shapes) -> buckets [ranks, C] int64, entries [n] int64, places... : the
// distinct ids of a batch by the rank that holds the row, and how to get back. n is the number of all ids.
//   buckets  block r begins with the rows of rank r that are wanted, as it counts them, rising; -1 behind
//   them.
//            Split "all": every block has all of them.
//   entries  place << 32 | position of the id, sorted: which ids want the row at a place of the list.
//   Positions
//            count through all inputs. (The gradients of a place are summed in their order:
//            braid.SumBuckets.)
//   With the attribute skip_negative a negative id is none: it has place 0, and -1 for each of them ends the
//   entries.
//   places   of each input, int32, in its shape: the place in the list of each id's row, r * C + its position
//            in block r; split "all": in a block.
// Attributes: rows (of the table), ranks, split (common/row_buckets.h: "hashed", "owned", "all"), owner, most
// (of the ranks' n, the largest; default the own one). C is the same for all ranks, and no list can overflow:
// it is `most`, or the rows that a rank has, where those are fewer. An id that is no row is InvalidArgument.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/index_groups.h"
#include "engine/ops/common/row_buckets.h"
#include "engine/ops/common/row_entries.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

RowBuckets buckets_of(const Node& node) {
  return {.rows = node.attrs.get("rows", std::int64_t{0}),
          .ranks = node.attrs.get("ranks", std::int64_t{1}),
          .split = row_split(node.attrs.get<std::string>("split", kHashed)),
          .owner = node.attrs.get("owner", std::int64_t{0})};
}

void infer(InferContext& c) {
  const RowBuckets buckets = buckets_of(c.node());
  if (buckets.rows < 0 || buckets.ranks < 1 || buckets.owner < 0 || buckets.owner >= buckets.ranks)
    c.fail(fmt::format("{} rows on {} ranks, owned by rank {}", buckets.rows, buckets.ranks, buckets.owner));
  std::int64_t n = 0;
  for (int i = 0; i < c.inputs(); ++i) {
    require_index_dtype(c, i);
    const std::int64_t ids = c.shape(i).is_static() ? c.shape(i).elements() : Shape::kUnknown;
    n = n < 0 || ids < 0 ? Shape::kUnknown : n + ids;
  }
  const std::int64_t most = std::max(n, c.attr("most", std::int64_t{0}));
  c.output(DType::Int64, {buckets.ranks, n < 0 ? Shape::kUnknown : buckets.capacity(most)});
  c.output(DType::Int64, {n});
  for (int i = 0; i < c.inputs(); ++i) c.output(DType::Int32, c.shape(i));
}

/// The rank and its row for each id as one number, rank * held rows + row; -1 of no id.
template <class I>
void number_rows(const RowBuckets& b, const I* ids, std::int64_t n, std::int64_t* numbers) {
  if (b.split != RowSplit::Hashed) {
    const std::int64_t first = b.split == RowSplit::Owned ? b.owner * b.held() : 0;
    for (std::int64_t k = 0; k < n; ++k)
      numbers[k] = ids[k] < 0 ? -1 : first + static_cast<std::int64_t>(ids[k]);
    return;
  }
  const RowShuffle shuffle(b.rows);
  const auto ranks = static_cast<std::uint64_t>(b.ranks);
  const std::int64_t held = b.held();
  for (std::int64_t k = 0; k < n; ++k) {
    if (ids[k] < 0) {
      numbers[k] = -1;
      continue;
    }
    const auto place = static_cast<std::uint64_t>(shuffle.place_of(static_cast<std::int64_t>(ids[k])));
    numbers[k] = static_cast<std::int64_t>(place % ranks) * held + static_cast<std::int64_t>(place / ranks);
  }
}

/// Writes buckets and entries, and the place of each id.
void fill(const RowBuckets& b, const IndexGroups& groups, std::int64_t n, std::int64_t capacity,
          std::int64_t* buckets, std::int64_t* entries, std::int32_t* places) {
  std::fill_n(places, n, 0);
  std::fill_n(buckets, b.ranks * capacity, std::int64_t{-1});
  const std::int64_t held = b.held();
  std::int64_t rank = 0, first = 0, end = held, used = 0, entry = 0;
  for (std::int64_t g = 0; g < groups.size(); ++g) {
    const std::int64_t number = groups.index(g);
    while (number >= end) {
      ++rank;
      first = end;
      end += held;
      used = 0;
    }
    const std::int64_t place = rank * capacity + used++;
    buckets[place] = number - first;
    for (std::int64_t e = groups.begin(g); e < groups.end(g); ++e) {
      places[groups.position(e)] = static_cast<std::int32_t>(place);
      entries[entry++] = place << kEntryPositionBits | groups.position(e);
    }
  }
  std::fill(entries + entry, entries + n, std::int64_t{-1});
  if (b.split == RowSplit::All)
    for (std::int64_t r = 1; r < b.ranks; ++r) std::copy_n(buckets, capacity, buckets + r * capacity);
}

PreparedKernel prepare(const PrepareContext& c) {
  const RowBuckets b = buckets_of(c.node);
  const std::int64_t n = c.outputs[1].shape[0], capacity = c.outputs[0].shape[1];
  if (b.ranks * b.held() >= kEntryLimit * 2 || b.ranks * capacity >= kEntryLimit || n >= kEntryLimit)
    c.fail(fmt::format("{} rows and lists of {} on {} ranks are more than can be counted", b.rows, capacity,
                       b.ranks));
  const auto aligned = [](std::size_t bytes) { return (bytes + 63) / 64 * 64; };
  const std::size_t numbers_bytes = aligned(static_cast<std::size_t>(n) * sizeof(std::int64_t)),
                    places_bytes = aligned(static_cast<std::size_t>(n) * sizeof(std::int32_t));
  PreparedKernel kernel;
  kernel.scratch_bytes = numbers_bytes + places_bytes + IndexGroups::scratch_bytes(n);
  kernel.run = [=, inputs = std::vector<OutputInfo>(c.inputs.begin(), c.inputs.end()),
                place = place_of(c.node), padded = c.attr(kSkipNegative, false)](const KernelArgs& a) {
    auto* numbers = static_cast<std::int64_t*>(a.scratch);
    auto* places = reinterpret_cast<std::int32_t*>(static_cast<std::byte*>(a.scratch) + numbers_bytes);
    std::int64_t first = 0;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const std::int64_t count = inputs[i].shape.elements();
      with_index("braid.BucketIds", inputs[i].dtype, [&]<class I>() {
        const I* ids = a.in<I>(static_cast<int>(i));
        (padded ? check_segment_ids<I> : check_indices<I>)(place, ids, count, b.rows);
        number_rows(b, ids, count, numbers + first);
      });
      first += count;
    }
    const IndexGroups groups(numbers, n, (b.split == RowSplit::All ? 1 : b.ranks) * b.held(),
                             static_cast<std::byte*>(a.scratch) + numbers_bytes + places_bytes);
    fill(b, groups, n, capacity, a.out<std::int64_t>(0), a.out<std::int64_t>(1), places);
    first = 0;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const std::int64_t count = inputs[i].shape.elements();
      std::copy_n(places + first, count, a.out<std::int32_t>(static_cast<int>(i) + 2));
      first += count;
    }
  };
  return kernel;
}

Cost cost(const InferContext& c, std::span<const OutputInfo> outputs) {
  Cost cost = grouping_cost(known_elements(outputs[1].shape));
  for (int i = 0; i < c.inputs(); ++i) cost.bytes += known_bytes({c.dtype(i), c.shape(i)});
  for (const OutputInfo& output : outputs) cost.bytes += known_bytes(output);
  return cost;
}

}  // namespace

void register_bucket_ids(OpRegistry& registry) {
  registry.add({.name = "braid.BucketIds",
                .traits = computes().output_lists({{"buckets"}, {"entries"}, {"places", "*"}}),
                .min_inputs = 1,
                .max_inputs = -1,
                .infer = infer,
                .no_gradient_reason = "ids have no gradient",
                .cost = cost,
                .cpu = prepare});
}

}  // namespace braid
