// Pulls: one request a server. Dense ranges land in the caller's memory; so do rows when one server has all
// keys and none is repeated, else they land in a block of the client and are copied to their places.
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

/// What one server sends, until it is at its place.
struct ServerPart {
  PullHead head;
  std::vector<comm::Bytes> keys;
  std::vector<comm::MutableBytes> destinations;
  std::shared_ptr<std::byte> block;  // rows that do not land directly
  struct Scatter {
    const SparseWork* work;
    const KeySplit::Part* part;
    const float* rows;
  };
  std::vector<Scatter> scatters;
};

struct PullState {
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
  call.destinations = server.destinations;
  call.hold = state;
  call.wait = wait;
  return call;
}

}  // namespace

void start_pull(Fleet& fleet, const PullRequest& request, PsClient::Done done, const WaitContext& wait) {
  auto state = std::make_shared<PullState>();
  try {
    fleet.require_tables();
    check(*fleet.set, request);
    state->servers.resize(static_cast<std::size_t>(fleet.servers()));
    for (ServerPart& server : state->servers) {
      server.head.min_version = request.min_version;
      server.head.insert = request.insert;
    }
    add_dense(fleet, request, *state);
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
    return asks_all || !server.destinations.empty();
  };
  const std::ptrdiff_t calls = std::count_if(state->servers.begin(), state->servers.end(), concerned);
  if (calls == 0) return done(nullptr);
  auto join = std::make_shared<Join>(fleet, static_cast<std::size_t>(calls), wait, std::move(done));
  for (std::size_t s = 0; s < state->servers.size(); ++s) {
    ServerPart& server = state->servers[s];
    if (!concerned(server)) continue;
    DataCall call = call_of(*fleet.links[s], state, server, join->wait());
    call.done = [state, join, &server](ErrorPtr error, const ReplyHead& reply) {
      if (!error) scatter(server);
      if (reply.stop) state->stop = true;
      if (reply.finish) state->finish = true;
      join->ended(std::move(error));
    };
    fleet.links[s]->call(std::move(call));
  }
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
