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
  int first = 0;
  for (const std::int64_t count : tables) {
    std::int64_t n = 0;
    for (std::int64_t t = 0; t < count; ++t) {
      const Shape& list = c.shape(first++);
      n = n < 0 || !list.is_static() ? Shape::kUnknown : n + list.elements();
    }
    c.output(DType::Int32, {n});
    c.output(DType::Int64, {1, n});
    c.output(DType::Int64, {servers, count});
  }
}

/// The work of one node: a table by itself, and then the keys of a group behind each other. Thread rule: one
/// run at a time.
class HomeKeys {
 public:
  HomeKeys(const PrepareContext& c, HostExchange exchange)
      : exchange_(std::move(exchange)),
        pool_(c.pool),
        rank_(c.attr("rank", std::int64_t{0})),
        servers_(static_cast<int>(c.attr("servers", std::int64_t{1}))),
        rows_(c.attr("rows", Ints{})),
        group_tables_(c.attr("group_tables", Ints{})) {
    scratch_bytes_ = whole_lines(exchange_.scratch_bytes());
    for (std::size_t t = 0; t < rows_.size(); ++t) {
      world_ = c.inputs[t].shape[0];
      Table& table = tables_.emplace_back();
      table.capacity = c.inputs[t].shape[1];
      const std::int64_t n = world_ * table.capacity;
      if (n >= kEntryLimit) c.fail(std::to_string(n) + " ids are more than can be counted");
      table.counts.resize(static_cast<std::size_t>(servers_));
      table.starts.resize(static_cast<std::size_t>(servers_));
      const auto part = [&](std::size_t bytes) {
        const std::size_t at = scratch_bytes_;
        scratch_bytes_ += whole_lines(bytes);
        return at;
      };
      table.keys = part(static_cast<std::size_t>(n) * sizeof(std::int64_t));
      table.places = part(static_cast<std::size_t>(n) * sizeof(std::int32_t));
      table.order = part(ps::order_scratch_bytes(n, 1, servers_));
    }
  }

  std::size_t scratch_bytes() const { return scratch_bytes_; }

  void run(const KernelArgs& a) {
    const HostExchange::Counts received = exchange_.run(a);
    pool_.parallel_for(std::ssize(rows_),
                       [&](std::int64_t t) { order_ids(a, static_cast<std::size_t>(t), received); });
    count_keys(a);
    pool_.parallel_for(std::ssize(rows_),
                       [&](std::int64_t t) { put_together(a, static_cast<std::size_t>(t)); });
  }

 private:
  struct Table {
    std::int64_t capacity = 0;
    std::size_t keys = 0, places = 0, order = 0;  // in the scratch memory
    std::vector<ps::IdList> lists;                // of each rank
    Ints counts;                                  // of its keys, by server
    Ints starts;                                  // of these in the group's keys
    std::int64_t* group_keys = nullptr;
    std::int32_t* out = nullptr;  // places
  };
  template <class T>
  static T* at(const KernelArgs& a, std::size_t place) {
    return reinterpret_cast<T*>(static_cast<std::byte*>(a.scratch) + place);
  }

  /// What was received are rows of this rank's part, as BucketIds counts them; their ids get their order.
  void order_ids(const KernelArgs& a, std::size_t t, const HostExchange::Counts& received) {
    Table& table = tables_[t];
    const RowShuffle shuffle(rows_[t]);
    table.lists.clear();
    for (std::int64_t from = 0; from < world_; ++from) {
      std::int64_t* const block = a.out<std::int64_t>(static_cast<int>(t)) + from * table.capacity;
      const std::int64_t count = received[static_cast<std::size_t>(from) * rows_.size() + t];
      for (std::int64_t i = 0; i < count; ++i) block[i] = shuffle.row_at(block[i] * world_ + rank_);
      std::fill(block + count, block + table.capacity, -1);
      table.lists.push_back({0, {block, static_cast<std::size_t>(count)}});
    }
    ps::order_keys(
        table.lists, 1, servers_,
        {at<std::int64_t>(a, table.keys), table.counts.data(), at<std::int32_t>(a, table.places), nullptr},
        at<std::byte>(a, table.order));
  }

  /// Of each group, and where the keys of its tables begin.
  void count_keys(const KernelArgs& a) {
    std::size_t first = 0;
    for (std::size_t g = 0; g < group_tables_.size(); ++g) {
      const auto output = static_cast<int>(rows_.size() + 3 * g);
      const auto tables = static_cast<std::size_t>(group_tables_[g]);
      auto* places = a.out<std::int32_t>(output);
      for (std::size_t t = first; t < first + tables; ++t) {
        tables_[t].out = places;
        tables_[t].group_keys = a.out<std::int64_t>(output + 1);
        places += world_ * tables_[t].capacity;
      }
      auto* count = a.out<std::int64_t>(output + 2);
      std::int64_t next = 0;
      for (std::size_t server = 0; server < static_cast<std::size_t>(servers_); ++server)
        for (std::size_t t = first; t < first + tables; ++t) {
          tables_[t].starts[server] = next;
          next += * count++ = tables_[t].counts[server];
        }
      first += tables;
    }
  }

  void put_together(const KernelArgs& a, std::size_t t) const {
    const Table& table = tables_[t];
    const auto* key = at<std::int64_t>(a, table.keys);
    Ints ends;  // of each server's keys, as the table has them
    for (std::size_t server = 0; server < table.counts.size(); ++server) {
      std::copy_n(key, table.counts[server], table.group_keys + table.starts[server]);
      key += table.counts[server];
      ends.push_back(key - at<std::int64_t>(a, table.keys));
    }
    const auto* place = at<std::int32_t>(a, table.places);
    for (std::int64_t from = 0; from < world_; ++from) {
      std::int32_t* const out = table.out + from * table.capacity;
      const auto count = std::ssize(table.lists[static_cast<std::size_t>(from)].ids);
      for (std::int64_t i = 0; i < count; ++i, ++place) {
        std::size_t server = 0;
        while (*place >= ends[server]) ++server;
        out[i] =
            static_cast<std::int32_t>(table.starts[server] + *place - ends[server] + table.counts[server]);
      }
      std::fill(out + count, out + table.capacity, -1);
    }
  }

  const HostExchange exchange_;
  ThreadPool& pool_;
  std::int64_t world_ = 1;
  const std::int64_t rank_;
  const int servers_;
  const Ints rows_, group_tables_;
  std::vector<Table> tables_;
  std::size_t scratch_bytes_ = 0;
};

PreparedKernel prepare_home_keys(const PrepareContext& c) {
  comm::Communicator& between =
      *require_service<HomeLink>(c, "connection between homes of rows").communicator;
  const auto deadline = require_service<StepServices>(c, "worker").peer_deadline;
  const auto keys =
      std::make_shared<HomeKeys>(c, HostExchange(c, c.attr("rows", Ints{}).size(), between, deadline, false));
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
