// Pulls: one request a server. Dense ranges land in the caller's memory; so do rows of ordered keys, and
// those of others when one server has all keys and none is repeated, else they land in a block of the client
// and are copied to their places. A pull ahead is two: the rows at once, and their repair when the round has
// come.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "ps/client/fleet.h"
#include "ps/client/key_split.h"

namespace braid::ps {
namespace {

/// A sparse part of a request: the caller's, and how it is divided.
struct SparseWork {
  SparsePull pull;
  std::size_t dim = 0;
  KeySplit split;
};

/// Rows of one server by ordered keys.
struct OrderedRows {
  std::size_t width = 0;
  std::uint64_t count = 0;
  float* rows = nullptr;
  ChangedRows::OfServer* changed = nullptr;  // set: rows are told there, and written nowhere
  std::uint32_t first = 0;                   // place of the first among the pull's keys
};

/// What one server sends, until it is at its place.
struct ServerPart {
  PullHead head;
  std::vector<OrderedRows> ordered;  // in the order of head.sparse, or of the pull ahead's
  std::vector<comm::Bytes> keys, known;
  std::vector<comm::MutableBytes> destinations;
  std::shared_ptr<std::byte> block;  // rows that do not land directly
  struct Scatter {
    const SparseWork* work;
    const KeySplit::Part* part;
    const float* rows;
  };
  std::vector<Scatter> scatters;
};

/// Its answer names the rows that it has.
bool is_named(PullKind kind) { return kind == PullKind::Repair || kind == PullKind::Changed; }

struct PullState {
  PullRequest request;  // of ordered keys
  std::vector<SparseWork> sparse;
  std::vector<ServerPart> servers;
  std::atomic<bool> stop{false}, finish{false};
};

void check(const TableSet& set, const PullRequest& request) {
  for (const DensePull& pull : request.dense) {
    if (pull.table < 0 || pull.table >= static_cast<int>(set.dense.size()))
      throw InvalidArgument(fmt::format("[ps] pull: there is no dense table {}", pull.table));
    const auto& spec = set.dense[static_cast<std::size_t>(pull.table)];
    if (static_cast<std::int64_t>(pull.out.size()) != spec.elements)
      throw InvalidArgument(fmt::format("[ps] pull: table '{}' has {} elements, the destination {}",
                                        spec.name, spec.elements, pull.out.size()));
  }
  for (const SparsePull& pull : request.sparse)
    if (pull.table < 0 || pull.table >= static_cast<int>(set.sparse.size()))
      throw InvalidArgument(fmt::format("[ps] pull: there is no sparse table {}", pull.table));
}

void add_dense(const Fleet& fleet, const PullRequest& request, PullState& state) {
  for (const DensePull& pull : request.dense) {
    for (const DenseRange& range : fleet.plan->ranges(pull.table)) {
      ServerPart& server = state.servers[static_cast<std::size_t>(range.server)];
      const auto count = static_cast<std::size_t>(range.count);
      server.head.dense.push_back({static_cast<std::uint32_t>(pull.table), 1, count});
      server.destinations.push_back(
          std::as_writable_bytes(pull.out.subspan(static_cast<std::size_t>(range.begin), count)));
    }
  }
}

void add_sparse(Fleet& fleet, PullState& state) {
  std::vector<std::size_t> floats(state.servers.size());
  for (SparseWork& work : state.sparse) {
    const auto table = static_cast<std::uint32_t>(work.pull.table);
    const auto dim = static_cast<std::uint32_t>(work.dim);
    if (work.split.as_given) {
      if (work.pull.keys.empty()) continue;
      ServerPart& server = state.servers[0];
      server.head.sparse.push_back({table, dim, work.pull.keys.size()});
      server.keys.push_back(std::as_bytes(work.pull.keys));
      server.destinations.push_back(
          std::as_writable_bytes(std::span(work.pull.rows, work.pull.keys.size() * work.dim)));
      continue;
    }
    for (std::size_t s = 0; s < state.servers.size(); ++s) {
      const KeySplit::Part& part = work.split.parts[s];
      if (part.keys.empty()) continue;
      state.servers[s].head.sparse.push_back({table, dim, part.keys.size()});
      state.servers[s].keys.push_back(std::as_bytes(std::span(part.keys)));
      // The place in the block is known when its size is; until then the destination has only a size.
      state.servers[s].destinations.push_back(
          {static_cast<std::byte*>(nullptr), part.keys.size() * work.dim * 4});
      state.servers[s].scatters.push_back({&work, &part, nullptr});
      floats[s] += part.keys.size() * work.dim;
    }
  }
  for (std::size_t s = 0; s < state.servers.size(); ++s) {
    ServerPart& server = state.servers[s];
    if (floats[s] == 0) continue;
    server.block = fleet.pool.take(floats[s] * sizeof(float));
    std::byte* next = server.block.get();
    std::size_t scatter = 0;
    for (comm::MutableBytes& destination : server.destinations) {
      if (destination.data() != nullptr) continue;
      destination = {next, destination.size()};
      server.scatters[scatter++].rows = reinterpret_cast<const float*>(next);
      next += destination.size();
    }
  }
}

/// A server's rows are one piece of each group, as are its keys. Of a repair only where its rows lie.
void add_ordered(const Fleet& fleet, const PullRequest& request, PullState& state) {
  for (const OrderedPull& pull : request.ordered) {
    const std::size_t dim = check_ordered(fleet, pull.keys, "pull"), tables = pull.keys.tables.size();
    const std::size_t width = request.slots ? row_width_of(fleet, pull.keys) : dim;
    const std::int64_t* keys = pull.keys.keys;
    float* rows = pull.rows;
    const std::uint32_t* known = pull.known;
    std::uint32_t first = 0;
    if (pull.changed != nullptr) {
      pull.changed->servers.resize(state.servers.size());
      for (ChangedRows::OfServer& its : pull.changed->servers) its.rows.clear();
    }
    for (std::size_t s = 0; s < state.servers.size(); ++s) {
      ServerPart& server = state.servers[s];
      std::uint64_t all = 0;
      for (std::size_t t = 0; t < tables; ++t) {
        const auto count = static_cast<std::uint64_t>(pull.keys.counts[s * tables + t]);
        all += count;
        if ((count != 0 || request.names_all) && server.head.kind != PullKind::Repair)
          server.head.sparse.push_back(
              {static_cast<std::uint32_t>(pull.keys.tables[t]), static_cast<std::uint32_t>(width), count});
      }
      if (all == 0) continue;
      server.ordered.push_back(
          {width, all, rows, pull.changed != nullptr ? &pull.changed->servers[s] : nullptr, first});
      first += static_cast<std::uint32_t>(all);
      if (server.head.kind != PullKind::Repair) server.keys.push_back(std::as_bytes(std::span(keys, all)));
      if (server.head.kind == PullKind::Changed) server.known.push_back(std::as_bytes(std::span(known, all)));
      if (!is_named(server.head.kind))
        server.destinations.push_back(std::as_writable_bytes(std::span(rows, all * width)));
      keys += all;
      if (rows != nullptr) rows += all * width;
      if (known != nullptr) known += all;
    }
  }
}

/// Puts the rows that came again to their places, or tells where they are. Throws: DataLoss.
void put_repaired(const ServerPart& server, std::uint64_t repaired, std::uint64_t bytes) {
  const std::byte* const block = server.block.get();
  const auto* where = reinterpret_cast<const std::uint32_t*>(block);
  std::uint64_t at = repaired * sizeof(std::uint32_t);
  for (std::uint64_t i = 0; i < repaired; ++i) {
    if (at > bytes) break;
    std::uint64_t position = where[i];
    auto group = server.ordered.begin();
    while (group != server.ordered.end() && position >= group->count) position -= (group++)->count;
    if (group == server.ordered.end())
      throw DataLoss(fmt::format("[ps] a repair names row {} of a pull that has fewer", where[i]));
    const std::size_t row_bytes = group->width * sizeof(float);
    if (at + row_bytes > bytes) break;
    if (group->changed != nullptr)
      group->changed->rows.push_back(
          {group->first + static_cast<std::uint32_t>(position), reinterpret_cast<const float*>(block + at)});
    else
      std::memcpy(group->rows + position * group->width, block + at, row_bytes);
    at += row_bytes;
  }
  for (const OrderedRows& group : server.ordered)
    if (group.changed != nullptr) group.changed->memory = server.block;
  if (at != bytes) throw DataLoss(fmt::format("[ps] a repair of {} rows in {} bytes", repaired, bytes));
}

void scatter(const ServerPart& server) {
  for (const auto& [work, part, rows] : server.scatters) {
    const std::size_t bytes = work->dim * sizeof(float);
    for (std::size_t i = 0; i < part->positions.size(); ++i)
      std::memcpy(work->pull.rows + part->positions[i] * work->dim, rows + i * work->dim, bytes);
    for (const auto& [position, row] : part->repeats)
      std::memcpy(work->pull.rows + position * work->dim, rows + row * work->dim, bytes);
  }
}

/// The server gives up a little earlier than the client, so that its answer, which knows who is missing,
/// arrives.
std::uint32_t parked_at_most(std::chrono::milliseconds left) {
  const auto margin = std::clamp<std::chrono::milliseconds>(left / 10, std::chrono::milliseconds(5),
                                                            std::chrono::milliseconds(2000));
  return static_cast<std::uint32_t>(std::max<std::int64_t>(0, (left - margin).count()));
}

DataCall call_of(ServerLink& link, const std::shared_ptr<PullState>& state, ServerPart& server,
                 const WaitContext& wait) {
  server.head.sender = link.sender();
  DataCall call;
  call.type = MessageType::Pull;
  call.what = fmt::format("pull of version {}", server.head.min_version);
  call.meta = [state, &server](std::chrono::milliseconds left) {
    PullHead head = server.head;
    head.timeout_ms = parked_at_most(left);
    return encode(head);
  };
  call.payload = server.keys;
  call.payload.insert(call.payload.end(), server.known.begin(), server.known.end());
  call.destinations = server.destinations;
  call.hold = state;
  call.wait = wait;
  return call;
}

}  // namespace

namespace {

/// One server's part of a pull; of a repair that the server cannot make, the pull itself.
void call_server(Fleet& fleet, const std::shared_ptr<PullState>& state, const std::shared_ptr<Join>& join,
                 std::size_t s) {
  ServerPart& server = state->servers[s];
  DataCall call = call_of(*fleet.links[s], state, server, join->wait());
  auto came = std::make_shared<std::uint64_t>(0);
  if (is_named(server.head.kind))
    call.rest = [&fleet, &server, came](std::uint64_t bytes) {
      *came = bytes;
      server.block = fleet.pool.take(bytes);
      return server.block.get();
    };
  call.done = [&fleet, state, join, &server, s, came](ErrorPtr error, const ReplyHead& reply) {
    if (!error && reply.unknown && server.head.kind == PullKind::Repair) {
      fleet.unknown.fetch_add(1, std::memory_order_relaxed);
      auto again = std::make_shared<PullState>();
      again->servers.resize(state->servers.size());
      for (ServerPart& part : again->servers) {
        part.head = server.head;
        part.head.kind = PullKind::Plain;
        part.head.dense.clear();
      }
      again->servers[s].head.dense = server.head.dense;
      again->servers[s].destinations = server.destinations;
      try {
        add_ordered(fleet, state->request, *again);
      } catch (...) {
        return join->ended(capture_current_exception());
      }
      DataCall plain = call_of(*fleet.links[s], again, again->servers[s], join->wait());
      plain.done = [state, join](ErrorPtr failed, const ReplyHead& answer) {
        if (answer.stop) state->stop = true;
        if (answer.finish) state->finish = true;
        join->ended(std::move(failed));
      };
      return fleet.links[s]->call(std::move(plain));
    }
    try {
      if (!error && is_named(server.head.kind)) {
        put_repaired(server, reply.repaired, *came);
        if (server.head.kind == PullKind::Repair)
          fleet.repaired.fetch_add(reply.repaired, std::memory_order_relaxed);
      } else if (!error) {
        scatter(server);
      }
    } catch (...) {
      error = capture_current_exception();
    }
    if (reply.stop) state->stop = true;
    if (reply.finish) state->finish = true;
    join->ended(std::move(error));
  };
  fleet.links[s]->call(std::move(call));
}

void start(Fleet& fleet, const PullRequest& request, PullKind kind, PsClient::Done done,
           const WaitContext& wait);

/// The rows at once, then the rest with the repair.
void start_ahead(Fleet& fleet, const PullRequest& request, PsClient::Done done, const WaitContext& wait) {
  PullRequest rows;
  rows.ordered = request.ordered;
  rows.ahead = request.ahead;
  rows.slots = request.slots;
  for (const OrderedPull& pull : request.ordered)
    for (const std::int64_t count : pull.keys.counts)
      fleet.pulled_ahead.fetch_add(static_cast<std::uint64_t>(count), std::memory_order_relaxed);
  start(
      fleet, rows, PullKind::Ahead,
      [&fleet, request, done = std::move(done), wait](ErrorPtr error) {
        if (error) return done(std::move(error));
        start(fleet, request, PullKind::Repair, done, wait);
      },
      wait);
}

void start(Fleet& fleet, const PullRequest& request, PullKind kind, PsClient::Done done,
           const WaitContext& wait) {
  auto state = std::make_shared<PullState>();
  try {
    fleet.require_tables();
    check(*fleet.set, request);
    if (!request.ordered.empty() && !request.sparse.empty())
      throw InvalidArgument("[ps] a pull has rows by ordered keys and by others");
    state->servers.resize(static_cast<std::size_t>(fleet.servers()));
    for (ServerPart& server : state->servers) {
      server.head.min_version = request.min_version;
      server.head.insert = request.insert;
      server.head.ordered = !request.ordered.empty();
      server.head.kind = kind;
      server.head.ahead = kind == PullKind::Plain ? 0 : request.ahead;
      server.head.slots = request.slots;
      server.head.trial = fleet.trial;
    }
    add_dense(fleet, request, *state);
    add_ordered(fleet, request, *state);
    state->request.ordered = request.ordered;
    state->request.slots = request.slots;
    for (const SparsePull& pull : request.sparse)
      state->sparse.push_back(
          {pull, static_cast<std::size_t>(fleet.set->sparse[static_cast<std::size_t>(pull.table)].dim),
           split_keys(pull.keys, fleet.servers(), pull.unique)});
    add_sparse(fleet, *state);
  } catch (...) {
    return done(capture_current_exception());
  }
  if (request.stop_vote != nullptr)
    done = [state, vote = request.stop_vote, done = std::move(done)](ErrorPtr error) {
      *vote = state->stop ? 1.0F : state->finish ? kFinishVote : 0.0F;
      done(std::move(error));
    };
  const auto concerned = [asks_all = request.stop_vote != nullptr](const ServerPart& server) {
    return asks_all || !server.destinations.empty() || !server.ordered.empty() || !server.head.sparse.empty();
  };
  const std::ptrdiff_t calls = std::count_if(state->servers.begin(), state->servers.end(), concerned);
  if (calls == 0) return done(nullptr);
  auto join = std::make_shared<Join>(fleet, static_cast<std::size_t>(calls), wait, std::move(done));
  for (std::size_t s = 0; s < state->servers.size(); ++s) {
    if (!concerned(state->servers[s])) continue;
    call_server(fleet, state, join, s);
  }
}

}  // namespace

void start_pull(Fleet& fleet, const PullRequest& request, PsClient::Done done, const WaitContext& wait) {
  const bool rounds = fleet.set && fleet.set->consistency == Consistency::Bsp;
  if (!request.ordered.empty() && request.ordered[0].known != nullptr)
    return start(fleet, request, PullKind::Changed, std::move(done), wait);
  if (request.ahead == 0 || request.ordered.empty() || !rounds || fleet.trial ||
      !fleet.ahead.next(fleet.pulled_ahead, fleet.repaired))
    return start(fleet, request, PullKind::Plain, std::move(done), wait);
  try {
    for (const OrderedPull& pull : request.ordered) check_ordered(fleet, pull.keys, "pull");
  } catch (...) {
    return done(capture_current_exception());
  }
  start_ahead(fleet, request, std::move(done), wait);
}

void start_wait_initialized(Fleet& fleet, std::shared_ptr<std::atomic<std::uint64_t>> version,
                            PsClient::Done done, const WaitContext& wait) {
  auto state = std::make_shared<PullState>();
  state->servers.resize(fleet.links.size());
  auto join = std::make_shared<Join>(fleet, fleet.links.size(), wait, std::move(done));
  for (std::size_t s = 0; s < fleet.links.size(); ++s) {
    DataCall call = call_of(*fleet.links[s], state, state->servers[s], join->wait());
    call.what = "wait for initial values";
    call.done = [join, version](ErrorPtr error, const ReplyHead& reply) {
      std::uint64_t seen = version->load();
      while (!error && reply.version < seen && !version->compare_exchange_weak(seen, reply.version)) {
      }
      join->ended(std::move(error));
    };
    fleet.links[s]->call(std::move(call));
  }
}

}  // namespace braid::ps
