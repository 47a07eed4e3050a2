#include "worker/strategies/home_keys.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/ir/op.h"
#include "engine/ops/common/row_entries.h"
#include "engine/ops/common/row_shuffle.h"
#include "engine/ops/common/shape_rules.h"
#include "ps/client/ordered_keys.h"
#include "worker/strategies/exchange_op.h"
#include "worker/strategies/home_link.h"
#include "worker/strategies/host_exchange.h"
#include "worker/strategies/step_services.h"

namespace braid::worker {
namespace {

using Ints = std::vector<std::int64_t>;

std::size_t whole_lines(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

void infer_home_keys(InferContext& c) {
  const Ints tables = c.attr("group_tables", Ints{});
  const auto servers = c.attr("servers", std::int64_t{0});
  if (std::accumulate(tables.begin(), tables.end(), std::int64_t{0}) != c.inputs())
    c.fail("each table of the groups needs a list");
  if (std::ssize(c.attr("rows", Ints{})) != c.inputs()) c.fail("the rows of each table must be given");
  if (servers < 1) c.fail("there are " + std::to_string(servers) + " servers");
  for (int i = 0; i < c.inputs(); ++i) {
    if (c.dtype(i) != DType::Int64) c.fail("lists of rows must be int64");
    c.output(DType::Int64, c.shape(i));
  }
  for (int i = 0; i < c.inputs(); ++i) c.output(DType::Int32, c.shape(i));
  int first = 0;
  for (const std::int64_t count : tables) {
    std::int64_t n = 0;
    for (std::int64_t t = 0; t < count; ++t) {
      const Shape& list = c.shape(first++);
      n = n < 0 || !list.is_static() ? Shape::kUnknown : n + list.elements();
    }
    c.output(DType::Int64, {1, n});
    c.output(DType::Int64, {servers, count});
  }
}

/// The work of one node. Thread rule: one run at a time.
class HomeKeys {
 public:
  HomeKeys(const PrepareContext& c, HostExchange exchange)
      : exchange_(std::move(exchange)),
        pool_(c.pool),
        rank_(c.attr("rank", std::int64_t{0})),
        servers_(static_cast<int>(c.attr("servers", std::int64_t{1}))),
        rows_(c.attr("rows", Ints{})),
        group_tables_(c.attr("group_tables", Ints{})) {
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      world_ = c.inputs[i].shape[0];
      capacities_.push_back(c.inputs[i].shape[1]);
    }
    std::size_t first = 0;
    for (const std::int64_t count : group_tables_) {
      std::int64_t n = 0;
      for (std::int64_t t = 0; t < count; ++t) n += world_ * capacities_[first++];
      if (n >= kEntryLimit) c.fail(std::to_string(n) + " ids are more than can be counted");
      places_bytes_ =
          std::max(places_bytes_, whole_lines(static_cast<std::size_t>(n) * sizeof(std::int32_t)));
      order_bytes_ =
          std::max(order_bytes_, whole_lines(ps::order_scratch_bytes(n, static_cast<int>(count), servers_)));
    }
  }

  std::size_t scratch_bytes() const {
    return whole_lines(exchange_.scratch_bytes()) + places_bytes_ + order_bytes_;
  }

  void run(const KernelArgs& a) {
    exchange_.run(a);
    pool_.parallel_for(std::ssize(rows_), [&](std::int64_t t) { name_ids(a, static_cast<std::size_t>(t)); });
    std::size_t first = 0;
    for (std::size_t g = 0; g < group_tables_.size(); ++g) {
      order_group(a, g, first);
      first += static_cast<std::size_t>(group_tables_[g]);
    }
  }

 private:
  std::int64_t* received(const KernelArgs& a, std::size_t table, std::int64_t from) const {
    return a.out<std::int64_t>(static_cast<int>(table)) + from * capacities_[table];
  }

  /// What was received are rows of this rank's part, as BucketIds counts them.
  void name_ids(const KernelArgs& a, std::size_t table) const {
    const RowShuffle shuffle(rows_[table]);
    for (std::int64_t from = 0; from < world_; ++from) {
      std::int64_t* const block = received(a, table, from);
      for (std::int64_t i = 0; i < capacities_[table] && block[i] >= 0; ++i)
        block[i] = shuffle.row_at(block[i] * world_ + rank_);
    }
  }

  void order_group(const KernelArgs& a, std::size_t group, std::size_t first) {
    const auto tables = static_cast<int>(group_tables_[group]);
    auto* const scratch = static_cast<std::byte*>(a.scratch) + whole_lines(exchange_.scratch_bytes());
    auto* const places = reinterpret_cast<std::int32_t*>(scratch);
    lists_.clear();
    for (int t = 0; t < tables; ++t)
      for (std::int64_t from = 0; from < world_; ++from) {
        const std::size_t table = first + static_cast<std::size_t>(t);
        const std::int64_t* const block = received(a, table, from);
        lists_.push_back({t, {block, static_cast<std::size_t>(used_of(block, capacities_[table]))}});
      }
    const auto output = static_cast<int>(2 * rows_.size() + 2 * group);
    ps::order_keys(lists_, tables, servers_,
                   {a.out<std::int64_t>(output), a.out<std::int64_t>(output + 1), places, nullptr},
                   scratch + places_bytes_);
    const std::int32_t* next = places;
    for (std::size_t l = 0; l < lists_.size(); ++l) {
      const std::size_t table = first + static_cast<std::size_t>(lists_[l].table);
      const std::int64_t from = static_cast<std::int64_t>(l) % world_, capacity = capacities_[table];
      auto* const out = a.out<std::int32_t>(static_cast<int>(rows_.size() + table)) + from * capacity;
      const std::size_t count = lists_[l].ids.size();
      std::copy_n(next, count, out);
      std::fill(out + count, out + capacity, -1);
      next += count;
    }
  }

  const HostExchange exchange_;
  ThreadPool& pool_;
  std::int64_t world_ = 1;
  const std::int64_t rank_;
  const int servers_;
  const Ints rows_, group_tables_;
  Ints capacities_;
  std::size_t places_bytes_ = 0, order_bytes_ = 0;
  std::vector<ps::IdList> lists_;
};

PreparedKernel prepare_home_keys(const PrepareContext& c) {
  comm::Communicator& between =
      *require_service<HomeLink>(c, "connection between homes of rows").communicator;
  const auto deadline = require_service<StepServices>(c, "worker").peer_deadline;
  const auto keys =
      std::make_shared<HomeKeys>(c, HostExchange(c, c.attr("rows", Ints{}).size(), between, deadline));
  PreparedKernel kernel;
  kernel.scratch_bytes = keys->scratch_bytes();
  kernel.run = [keys](const KernelArgs& a) { keys->run(a); };
  return kernel;
}

}  // namespace

void register_home_keys(OpRegistry& registry) {
  OpDef keys = exchange_op("braid.HomeKeys", Lane::Pull);
  keys.min_inputs = 1;
  keys.infer = infer_home_keys;
  keys.cpu = prepare_home_keys;
  registry.add(std::move(keys));
}

}  // namespace braid::worker
