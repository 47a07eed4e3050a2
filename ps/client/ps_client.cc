#include "ps/client/ps_client.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <set>
#include <thread>

#include "base/log.h"
#include "base/random_id.h"
#include "comm/transport/peer_probe.h"
#include "proto/ps.pb.h"
#include "ps/client/fleet.h"
#include "ps/control_status.h"
#include "ps/table_set_proto.h"

namespace braid::ps {
namespace {

constexpr std::chrono::milliseconds kRegisterTurn{300};

void fill(const Sender& sender, proto::PsSender* out) {
  out->set_job(sender.job);
  out->set_incarnation(sender.incarnation);
  out->set_instance(sender.instance);
  out->set_session(sender.session);
  out->set_worker(sender.worker);
}

/// Starts an asynchronous call and waits for its end, which its own WaitContext bounds.
void run_blocking(const std::function<void(PsClient::Done)>& start) {
  auto ended = std::make_shared<std::promise<ErrorPtr>>();
  auto result = ended->get_future();
  start([ended](ErrorPtr error) { ended->set_value(std::move(error)); });
  if (const ErrorPtr error = result.get()) throw_error(*error);
}

}  // namespace

struct PsClient::Impl {
  explicit Impl(Options given) : options(std::move(given)), session(random_id()) {}

  ~Impl() {
    fleet.timer.close();
    for (auto& link : fleet.links) link->close();
    try {
      fleet.requests.wait_none(WaitContext::with_timeout(std::chrono::seconds(10)),
                               "[ps] requests under way");
    } catch (const Error& e) {
      log_error("[ps] closing the client: {}", e.message());
    }
  }

  void register_with_all(const WaitContext& wait);
  void open(std::size_t server, const proto::PsRegisterReply& reply);

  /// fn(link) for all servers at once; throws the error of the lowest index.
  void on_all(const std::function<void(ServerLink&)>& fn) {
    std::vector<ErrorPtr> errors(fleet.links.size());
    {
      std::vector<std::jthread> threads;
      for (std::size_t s = 0; s < fleet.links.size(); ++s)
        threads.emplace_back([&, s] {
          try {
            fn(*fleet.links[s]);
          } catch (...) {
            errors[s] = capture_current_exception();
          }
        });
    }
    for (const ErrorPtr& error : errors)
      if (error) throw_error(*error);
  }

  void start_job(const WaitContext& wait) {
    on_all([&](ServerLink& link) {
      proto::PsStartRequest request;
      fill(link.sender(), request.mutable_sender());
      link.control().start(request, wait);
    });
    started = true;
  }

  const Options options;
  const std::uint64_t session;
  Fleet fleet;
  std::set<int> assigned;  // dense tables whose values this client has set
  bool started = false;    // by this client
};

void PsClient::Impl::register_with_all(const WaitContext& wait) {
  std::vector<bool> registered(fleet.links.size());
  std::vector<std::unique_ptr<comm::PeerProbe>> probes;
  for (const std::string& address : options.servers)
    probes.push_back(std::make_unique<comm::PeerProbe>(address, options.security));
  std::size_t left = fleet.links.size();
  ErrorPtr refusal;  // by one of them; the others are to know that this worker has heard it
  while (left != 0) {
    if (refusal) throw_error(*refusal);
    for (std::size_t s = 0; s < fleet.links.size(); ++s) {
      if (registered[s]) continue;
      if (probes[s] && !probes[s]->accepts(wait.at_most(kRegisterTurn))) {
        std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(wait.remaining(), kRegisterTurn / 10));
        continue;
      }
      probes[s].reset();
      proto::PsRegisterRequest request;
      request.set_job(options.job);
      request.set_incarnation(options.incarnation);
      request.set_worker(options.worker);
      request.set_workers(options.workers);
      request.set_server(static_cast<int>(s));
      request.set_servers(static_cast<int>(fleet.links.size()));
      request.set_session(session);
      request.set_host(host_identity());
      proto::PsRegisterReply reply;
      try {
        fleet.links[s]->control().register_worker(request, &reply, wait.at_most(kRegisterTurn));
      } catch (const DeadlineExceeded&) {
        continue;
      } catch (const Unavailable&) {
        std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(wait.remaining(), kRegisterTurn / 10));
        if (!wait.expired()) continue;
        throw;
      } catch (const InvalidArgument&) {
        if (!refusal) refusal = capture_current_exception();
        continue;
      }
      open(s, reply);
      registered[s] = true;
      --left;
    }
    if (left == 0 || !(wait.expired() || wait.stopped())) continue;
    std::vector<std::string> missing;
    for (std::size_t s = 0; s < registered.size(); ++s)
      if (!registered[s])
        missing.push_back(
            fmt::format("server {} ({}{})", s, options.servers[s],
                        probes[s] && !probes[s]->reason().empty() ? ": " + probes[s]->reason() : ""));
    const auto text = fmt::format("[ps] no answer from {}", fmt::join(missing, ", "));
    if (wait.stopped()) throw Cancelled(text + ": cancelled");
    throw Unavailable(text + " before the deadline");
  }
}

void PsClient::Impl::open(std::size_t server, const proto::PsRegisterReply& reply) {
  const std::string& grpc_address = options.servers[server];
  std::string address =
      fmt::format("{}:{}", grpc_address.substr(0, grpc_address.rfind(':')), reply.data_port());
  comm::Security security = options.security;
  if (options.same_host_socket && !reply.unix_path().empty() && reply.host() == host_identity() &&
      ::access(reply.unix_path().c_str(), W_OK) == 0) {
    address = (reply.shared_memory() ? "shm:" : "unix:") + reply.unix_path();
    security.tls = {};  // a file that only this user may open
  }
  comm::Channel::Options channel;
  channel.connections = options.connections;
  channel.connect_timeout = options.deadline;
  channel.security = security;
  ServerLink& link = *fleet.links[server];
  link.open({stable_hash(options.job), options.incarnation, reply.instance(), session, options.worker},
            comm::Channel::create(address, channel));
  if (options.worker >= 0)
    link.start_heartbeats(std::min(options.deadline, std::chrono::milliseconds(reply.deadline_ms())) / 5);
}

PsClient::PsClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PsClient::~PsClient() = default;

std::unique_ptr<PsClient> PsClient::connect(Options options, const WaitContext& wait) {
  if (options.servers.empty()) throw InvalidArgument("[ps] the cluster has no parameter servers");
  auto impl = std::make_unique<Impl>(std::move(options));
  for (std::size_t s = 0; s < impl->options.servers.size(); ++s)
    impl->fleet.links.push_back(std::make_shared<ServerLink>(
        std::make_unique<ControlLink>(static_cast<int>(s), impl->options.servers[s], impl->options.security),
        impl->fleet.timer));
  impl->register_with_all(wait);
  return std::unique_ptr<PsClient>(new PsClient(std::move(impl)));
}

void PsClient::create_tables(const TableSet& set, const WaitContext& wait) {
  check_table_set(set);
  impl_->on_all([&](ServerLink& link) {
    proto::PsCreateTablesRequest request;
    fill(link.sender(), request.mutable_sender());
    to_proto(set, request.mutable_tables());
    request.set_hash(table_set_hash(set));
    link.control().create_tables(request, wait);
  });
  impl_->fleet.plan.emplace(set, impl_->fleet.servers());
  impl_->fleet.set = set;
}

const TableSet& PsClient::tables() const {
  impl_->fleet.require_tables();
  return *impl_->fleet.set;
}

int PsClient::servers() const { return impl_->fleet.servers(); }

const ShardPlan& PsClient::plan() const {
  impl_->fleet.require_tables();
  return *impl_->fleet.plan;
}

namespace {

int find_dense(const TableSet& set, std::string_view name, std::size_t elements) {
  for (std::size_t t = 0; t < set.dense.size(); ++t) {
    if (set.dense[t].name != name) continue;
    if (static_cast<std::size_t>(set.dense[t].elements) != elements)
      throw InvalidArgument(
          fmt::format("[ps] table '{}' has {} elements, not {}", name, set.dense[t].elements, elements));
    return static_cast<int>(t);
  }
  throw InvalidArgument(fmt::format("[ps] there is no dense table '{}'", name));
}

}  // namespace

void PsClient::set_dense(std::string_view name, std::span<const float> values, const WaitContext& wait) {
  const TableSet& set = tables();
  const int table = find_dense(set, name, values.size());
  run_blocking([&](Done done) { start_assign(impl_->fleet, table, values, std::move(done), wait); });
  impl_->assigned.insert(table);
  if (impl_->assigned.size() == set.dense.size()) impl_->start_job(wait);
}

bool PsClient::started(const WaitContext& wait) {
  const std::vector<ServerStats> all = stats(wait);
  impl_->started =
      std::all_of(all.begin(), all.end(), [](const ServerStats& server) { return server.started; });
  return impl_->started;
}

std::uint64_t PsClient::wait_initialized(const WaitContext& wait) {
  if (impl_->options.worker == 0 && tables().dense.empty() && !impl_->started) impl_->start_job(wait);
  auto version = std::make_shared<std::atomic<std::uint64_t>>(~std::uint64_t{0});
  run_blocking([&](Done done) { start_wait_initialized(impl_->fleet, version, std::move(done), wait); });
  return *version == ~std::uint64_t{0} ? 0 : version->load();  // there are no tables at all
}

void PsClient::pull_async(PullRequest request, Done done, const WaitContext& wait) {
  start_pull(impl_->fleet, request, std::move(done), wait);
}

void PsClient::pull(PullRequest request, const WaitContext& wait) {
  run_blocking([&](Done done) { start_pull(impl_->fleet, request, std::move(done), wait); });
}

void PsClient::push_async(PushRequest request, Done done, const WaitContext& wait) {
  start_push(impl_->fleet, request, std::move(done), wait);
}

void PsClient::push(PushRequest request, const WaitContext& wait) {
  run_blocking([&](Done done) { start_push(impl_->fleet, request, std::move(done), wait); });
}

void PsClient::write_rows_async(std::vector<OrderedPush> rows, Done done, const WaitContext& wait) {
  start_write(impl_->fleet, rows, std::move(done), wait);
}

void PsClient::set_trial(bool on) { impl_->fleet.trial = on; }

void PsClient::read_dense(std::string_view name, std::span<float> out, const WaitContext& wait) {
  const int table = find_dense(tables(), name, out.size());
  PullRequest request;
  request.dense.push_back({table, out});
  request.insert = false;
  pull(std::move(request), wait);
}

void PsClient::refuse(const ErrorRecord& why, const WaitContext& wait) {
  impl_->on_all([&](ServerLink& link) {
    proto::PsRefuseRequest request;
    fill(link.sender(), request.mutable_sender());
    request.set_code(static_cast<int>(why.code));
    request.set_message(why.message);
    link.control().refuse(request, wait);
  });
}

std::vector<ShardInfo> PsClient::checkpoint(const std::filesystem::path& directory, std::uint64_t step,
                                            const WaitContext& wait, const std::string& run) {
  std::vector<ShardInfo> shards(impl_->fleet.links.size());
  impl_->on_all([&](ServerLink& link) {
    proto::PsCheckpointRequest request;
    fill(link.sender(), request.mutable_sender());
    request.set_directory(std::filesystem::absolute(directory).string());
    request.set_step(step);
    request.set_run(run);
    proto::PsCheckpointReply reply;
    link.control().checkpoint(request, &reply, wait);
    shards[static_cast<std::size_t>(link.control().server())] = {reply.file(), reply.bytes(), reply.crc()};
  });
  return shards;
}

std::uint64_t PsClient::restore(const std::filesystem::path& directory, const WaitContext& wait) {
  std::atomic<std::uint64_t> step{0};
  impl_->on_all([&](ServerLink& link) {
    proto::PsRestoreRequest request;
    fill(link.sender(), request.mutable_sender());
    request.set_directory(std::filesystem::absolute(directory).string());
    proto::PsRestoreReply reply;
    link.control().restore(request, &reply, wait);
    step = reply.step();
  });
  impl_->started = true;
  return step;
}

std::vector<ServerStats> PsClient::stats(const WaitContext& wait) {
  std::vector<ServerStats> all(impl_->fleet.links.size());
  impl_->on_all([&](ServerLink& link) {
    proto::PsStatsReply reply;
    link.control().stats(&reply, wait);
    const int server = link.control().server();
    all[static_cast<std::size_t>(server)] = {server,
                                             link.control().address(),
                                             reply.version(),
                                             reply.started(),
                                             {reply.counters().begin(), reply.counters().end()}};
  });
  return all;
}

PushCounts PsClient::push_counts() const {
  const Fleet& fleet = impl_->fleet;
  PushCounts counts{fleet.applied, fleet.duplicate, fleet.dropped, 0, fleet.late};
  for (const auto& link : fleet.links) counts.retried += link->retries();
  return counts;
}

AheadCounts PsClient::ahead_counts() const {
  const Fleet& fleet = impl_->fleet;
  return {fleet.pulled_ahead, fleet.repaired, fleet.unknown};
}

void PsClient::leave(const WaitContext& wait) {
  impl_->fleet.pushes.wait_none(wait, "[ps] leave: pushes under way");
  impl_->on_all([&](ServerLink& link) {
    proto::PsLeaveRequest request;
    fill(link.sender(), request.mutable_sender());
    link.control().leave(request, wait);
  });
}

void PsClient::stop_before_start(const WaitContext& wait) {
  impl_->on_all([&](ServerLink& link) {
    proto::PsShutdownRequest request;
    fill(link.sender(), request.mutable_sender());
    request.set_before_start(true);
    link.control().shutdown(request, wait);
  });
}

std::string PsClient::report_lost_server(const WaitContext& wait) {
  const auto& links = impl_->fleet.links;
  std::vector<char> lost(links.size());
  impl_->on_all([&](ServerLink& link) {
    lost[static_cast<std::size_t>(link.control().server())] = link.is_lost(wait) ? 1 : 0;
  });
  const auto first = std::find(lost.begin(), lost.end(), 1);
  if (first == lost.end()) return {};
  const ControlLink& gone = links[static_cast<std::size_t>(first - lost.begin())]->control();
  const std::string name = fmt::format("server {} ({})", gone.server(), gone.address());
  impl_->on_all([&](ServerLink& link) {
    if (lost[static_cast<std::size_t>(link.control().server())] != 0) return;
    proto::PsShutdownRequest request;
    fill(link.sender(), request.mutable_sender());
    request.set_lost_server(name);
    try {
      link.control().shutdown(request, wait);
    } catch (const Error& error) {
      log_debug("[ps] {} cannot be told that {} is lost: {}", link.control().address(), name,
                error.message());
    }
  });
  return name;
}

void PsClient::shutdown(const WaitContext& wait, bool job_terminated) {
  impl_->on_all([&](ServerLink& link) {
    proto::PsShutdownRequest request;
    fill(link.sender(), request.mutable_sender());
    request.set_terminated(job_terminated);
    link.control().shutdown(request, wait);
  });
}

}  // namespace braid::ps
