// Pushes and initial values: one request a server. Dense ranges leave from the caller's memory; so do rows
// when one server has all keys and none is repeated, else they are gathered, rows of one key added, in a
// block of the client.
#include <fmt/format.h>

#include <cstring>

#include "ps/client/fleet.h"
#include "ps/client/key_split.h"

namespace braid::ps {
namespace {

struct PushPart {
  PushHead head;
  std::vector<comm::Bytes> keys;
  std::vector<comm::Bytes> dense;
  std::vector<comm::Bytes> rows;
  bool concerned = false;
};

struct PushState {
  std::vector<KeySplit> splits;
  std::vector<std::shared_ptr<std::byte>> blocks;
  std::vector<PushPart> servers;
};

void check(const TableSet& set, const PushRequest& request) {
  for (const DensePush& push : request.dense) {
    if (push.table < 0 || push.table >= static_cast<int>(set.dense.size()))
      throw InvalidArgument(fmt::format("[ps] push: there is no dense table {}", push.table));
    const auto& spec = set.dense[static_cast<std::size_t>(push.table)];
    if (static_cast<std::int64_t>(push.gradient.size()) != spec.elements)
      throw InvalidArgument(fmt::format("[ps] push: table '{}' has {} elements, the gradient {}", spec.name,
                                        spec.elements, push.gradient.size()));
  }
  for (const SparsePush& push : request.sparse)
    if (push.table < 0 || push.table >= static_cast<int>(set.sparse.size()))
      throw InvalidArgument(fmt::format("[ps] push: there is no sparse table {}", push.table));
}

void add_dense(const Fleet& fleet, int table, std::span<const float> values, PushState& state) {
  for (const DenseRange& range : fleet.plan->ranges(table)) {
    PushPart& server = state.servers[static_cast<std::size_t>(range.server)];
    const auto count = static_cast<std::size_t>(range.count);
    server.head.dense.push_back({static_cast<std::uint32_t>(table), 1, count});
    server.dense.push_back(std::as_bytes(values.subspan(static_cast<std::size_t>(range.begin), count)));
    server.concerned = true;
  }
}

void gather(const SparsePush& push, std::size_t dim, const KeySplit::Part& part, float* out) {
  const std::size_t bytes = dim * sizeof(float);
  for (std::size_t i = 0; i < part.positions.size(); ++i)
    std::memcpy(out + i * dim, push.gradients + part.positions[i] * dim, bytes);
  for (const auto& [position, row] : part.repeats) {
    const float* from = push.gradients + position * dim;
    float* to = out + row * dim;
    for (std::size_t c = 0; c < dim; ++c) to[c] += from[c];
  }
}

/// Every server hears of a sparse table, if only that there are no keys for it: its round waits for that.
void add_sparse(Fleet& fleet, const SparsePush& push, PushState& state) {
  const auto dim = static_cast<std::size_t>(fleet.set->sparse[static_cast<std::size_t>(push.table)].dim);
  const KeySplit& split = state.splits.emplace_back(split_keys(push.keys, fleet.servers(), push.unique));
  for (std::size_t s = 0; s < state.servers.size(); ++s) {
    PushPart& server = state.servers[s];
    const std::size_t count = split.as_given ? push.keys.size() : split.parts[s].keys.size();
    server.head.sparse.push_back(
        {static_cast<std::uint32_t>(push.table), static_cast<std::uint32_t>(dim), count});
    server.concerned = true;
    if (count == 0) continue;
    if (split.as_given) {
      server.keys.push_back(std::as_bytes(push.keys));
      server.rows.push_back(std::as_bytes(std::span(push.gradients, count * dim)));
      continue;
    }
    auto& block = state.blocks.emplace_back(fleet.pool.take(count * dim * sizeof(float)));
    auto* rows = reinterpret_cast<float*>(block.get());
    gather(push, dim, split.parts[s], rows);
    server.keys.push_back(std::as_bytes(std::span(split.parts[s].keys)));
    server.rows.push_back(std::as_bytes(std::span<const float>(rows, count * dim)));
  }
}

/// `dim`: numbers of a row.
void add_ordered(const OrderedPush& push, std::size_t dim, bool names_all, PushState& state) {
  const std::size_t tables = push.keys.tables.size();
  const std::int64_t* keys = push.keys.keys;
  const float* rows = push.gradients;
  for (std::size_t s = 0; s < state.servers.size(); ++s) {
    PushPart& server = state.servers[s];
    std::uint64_t all = 0;
    for (std::size_t t = 0; t < tables; ++t) {
      const auto count = static_cast<std::uint64_t>(push.keys.counts[s * tables + t]);
      all += count;
      if (count != 0 || names_all)
        server.head.sparse.push_back(
            {static_cast<std::uint32_t>(push.keys.tables[t]), static_cast<std::uint32_t>(dim), count});
    }
    server.concerned = server.concerned || names_all || all != 0;
    if (all == 0) continue;
    server.keys.push_back(std::as_bytes(std::span(keys, all)));
    server.rows.push_back(std::as_bytes(std::span(rows, all * dim)));
    keys += all;
    rows += all * dim;
  }
}

void start(Fleet& fleet, MessageType type, const std::string& what, const std::shared_ptr<PushState>& state,
           PsClient::Done done, const WaitContext& wait) {
  std::size_t calls = 0;
  for (const PushPart& server : state->servers) calls += server.concerned ? 1 : 0;
  if (calls == 0) return done(nullptr);
  auto join = std::make_shared<Join>(fleet, calls, wait, std::move(done));
  for (std::size_t s = 0; s < state->servers.size(); ++s) {
    PushPart& server = state->servers[s];
    if (!server.concerned) continue;
    server.head.sender = fleet.links[s]->sender();
    DataCall call;
    call.type = type;
    call.what = what;
    call.meta = [state, &server](std::chrono::milliseconds) { return encode(server.head); };
    for (const auto* pieces : {&server.keys, &server.dense, &server.rows})
      call.payload.insert(call.payload.end(), pieces->begin(), pieces->end());
    call.hold = state;
    call.wait = join->wait();
    call.done = [&fleet, join, counts = type == MessageType::Push && !server.head.trial](
                    ErrorPtr error, const ReplyHead& reply) {
      if (!error && counts) {
        auto& count = reply.result == PushResult::Applied     ? fleet.applied
                      : reply.result == PushResult::Duplicate ? fleet.duplicate
                      : reply.result == PushResult::Late      ? fleet.late
                                                              : fleet.dropped;
        count.fetch_add(1, std::memory_order_relaxed);
      }
      join->ended(std::move(error));
    };
    fleet.links[s]->call(std::move(call));
  }
}

}  // namespace

void start_push(Fleet& fleet, const PushRequest& request, PsClient::Done done, const WaitContext& wait) {
  auto state = std::make_shared<PushState>();
  try {
    fleet.require_tables();
    check(*fleet.set, request);
    state->servers.resize(fleet.links.size());
    state->splits.reserve(request.sparse.size());
    for (PushPart& server : state->servers) {
      server.head.step = request.step;
      server.head.sequence = request.sequence;
      server.head.examples = request.examples;
      server.head.params = request.params;
      server.head.votes_to_stop = request.votes_to_stop;
      server.head.votes_to_finish = request.votes_to_finish;
      server.head.ordered = !request.ordered.empty();
      server.head.trial = fleet.trial;
    }
    if (!request.ordered.empty() && !request.sparse.empty())
      throw InvalidArgument("[ps] a push has rows by ordered keys and by others");
    for (const DensePush& push : request.dense) add_dense(fleet, push.table, push.gradient, *state);
    for (const SparsePush& push : request.sparse) add_sparse(fleet, push, *state);
    for (const OrderedPush& push : request.ordered)
      add_ordered(push, check_ordered(fleet, push.keys, "push"), true, *state);
  } catch (...) {
    return done(capture_current_exception());
  }
  fleet.pushes.begin();
  start(
      fleet, MessageType::Push, fmt::format("push {} of step {}", request.sequence, request.step), state,
      [&fleet, done = std::move(done)](ErrorPtr error) {
        done(std::move(error));
        fleet.pushes.end();
      },
      wait);
}

void start_assign(Fleet& fleet, int table, std::span<const float> values, PsClient::Done done,
                  const WaitContext& wait) {
  auto state = std::make_shared<PushState>();
  state->servers.resize(fleet.links.size());
  add_dense(fleet, table, values, *state);
  start(fleet, MessageType::Assign, "initial values", state, std::move(done), wait);
}

void start_write(Fleet& fleet, const std::vector<OrderedPush>& rows, PsClient::Done done,
                 const WaitContext& wait) {
  auto state = std::make_shared<PushState>();
  try {
    fleet.require_tables();
    state->servers.resize(fleet.links.size());
    for (PushPart& server : state->servers) server.head.trial = fleet.trial;
    for (const OrderedPush& write : rows) {
      check_ordered(fleet, write.keys, "write");
      add_ordered(write, row_width_of(fleet, write.keys) + 1, false, *state);
    }
  } catch (...) {
    return done(capture_current_exception());
  }
  fleet.pushes.begin();
  start(
      fleet, MessageType::Assign, "rows that go back", state,
      [&fleet, done = std::move(done)](ErrorPtr error) {
        done(std::move(error));
        fleet.pushes.end();
      },
      wait);
}

}  // namespace braid::ps
