#include "worker/roles/bootstrap.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <vector>

#include "base/env.h"
#include "base/error.h"
#include "base/init.h"
#include "base/log.h"
#include "comm/local/gated_communicator.h"
#include "comm/local/local_communicator.h"
#include "comm/make_communicator.h"
#include "comm/mpi/mpi_session.h"
#include "comm/rendezvous/grpc_rendezvous.h"
#include "comm/rendezvous/in_process.h"
#include "comm/transport/address.h"
#include "engine/device/accelerator.h"
#include "proto/job.pb.h"
#include "ps/client/ps_client.h"
#include "ps/client/queue_link.h"
#include "worker/elastic/elastic_world.h"
#include "worker/job/elastic.h"
#include "worker/job/homes.h"
#include "worker/job/job.h"
#include "worker/job/mesh.h"
#include "worker/process/security.h"

namespace braid::worker {
namespace {

using launch::ClusterSpec;
using launch::Task;
using launch::TaskType;

std::uint64_t incarnation() {
  return static_cast<std::uint64_t>(env_int("BRAID_INCARNATION", 0).value_or(0));
}

/// Workers of one host each write files of their own.
void check_files(const proto::Job& job, const ClusterSpec& cluster) {
  if (cluster.local_world < 2) return;
  const proto::Metrics& metrics = job.metrics();
  const bool leader_logs_steps = !job.run_directory().empty();
  for (const auto& [field, name] :
       {std::pair("trace_file", metrics.trace_file()),
        std::pair("steps_file", leader_logs_steps ? std::string() : metrics.steps_file())})
    if (!name.empty() && name.find("%r") == std::string::npos && !name.starts_with("/dev/"))
      throw InvalidArgument("metrics." + std::string(field) + " '" + name + "' would be written by " +
                            std::to_string(cluster.local_world) +
                            " workers of this host: put %r into it, which becomes the role");
}

/// What workers of an elastic job must have alike: who comes with another job is refused, and ends nothing.
std::string job_text(const proto::Job& job) {
  proto::Job alike = job;
  alike.clear_run_directory();
  alike.clear_checkpoint();
  if (spreads_state(job)) alike.mutable_checkpoint()->set_directory(job.checkpoint().directory());
  alike.clear_evaluation();
  alike.clear_metrics();
  alike.clear_hooks();
  alike.mutable_runtime()->clear_intra_op_threads();
  alike.mutable_strategy()->clear_tls();
  alike.mutable_strategy()->clear_token_file();
  alike.mutable_strategy()->clear_data_ports();
  return fmt::format("{} ({:016x})", job.name(), stable_hash(alike.SerializeAsString()));
}

std::string own_address(const ClusterSpec& cluster) { return cluster.address(cluster.task).value_or(""); }

}  // namespace

void check_cluster(const proto::Job& job, const ClusterSpec& cluster) {
  const auto kind = job.strategy().kind();
  const std::string who = "strategy.kind " + proto::Strategy::Kind_Name(kind) + " ";
  auto refuse = [&](const std::string& why) {
    throw InvalidArgument(who + why + "; the cluster is " + cluster.describe());
  };
  if (!cluster.evaluator.empty() && has_communicator(job) && job.strategy().backend() == proto::Strategy::MPI)
    refuse("with backend MPI has no evaluator, because every rank is a worker; set backend RING or NCCL");
  if (cluster.task.type == TaskType::Evaluator) return;
  check_files(job, cluster);
  if (const auto places = open_places(job)) {
    if (cluster.rank.value_or(0) >= *places)
      refuse(fmt::format("has places for workers 0 to {} (strategy.elastic.max_workers)", *places - 1));
  } else if (cluster.partial) {
    refuse(
        "needs all workers and servers listed, without gaps; workers come and go with strategy.elastic (PS "
        "with consistency ASP and input.shard DYNAMIC)");
  }
  if (cluster.joins && !elastic_limits(job))
    refuse("has workers that all begin together: --join is for jobs with strategy.elastic");
  if (const auto limits = elastic_limits(job)) {
    if (!cluster.joins && cluster.world > limits->max_workers)
      refuse(fmt::format("takes strategy.elastic.max_workers, {}, and no more than rows in a step",
                         limits->max_workers));
    if (!cluster.is_leader() && cluster.address(cluster.leader()).value_or("").empty())
      refuse("with strategy.elastic needs the leader's address: TF_CONFIG, --cluster or --join");
  }
  if (has_servers(job)) {
    if (cluster.ps.empty())
      refuse(
          "needs at least one ps task (on one host: braid launch --workers 2 --ps 1 -- train ...; "
          "under mpirun: --ps-ranks 1)");
    if (cluster.world < 1 && !open_places(job)) refuse("needs at least one worker");
    return;
  }
  if (!cluster.ps.empty())
    refuse(
        fmt::format("has no parameter servers, and this cluster lists {}; set strategy.kind=PS "
                    "or PS_ALLREDUCE",
                    cluster.ps.size()));
  if (kind == proto::Strategy::MIRRORED && cluster.world > 1 && job.strategy().mirrored().devices() == 0)
    refuse(
        "with several processes needs strategy.mirrored.devices, the replicas of each: all must know how "
        "many "
        "there are");
  mesh_of(job, cluster.world);
  if (kind == proto::Strategy::LOCAL && cluster.world > 1)
    refuse(
        fmt::format("supports one worker, and this cluster has {}; set strategy.kind=ALLREDUCE, HYBRID, "
                    "PIPELINE, TENSOR, EXPERTS or PS",
                    cluster.world));
}

std::string listen_address(const ClusterSpec& cluster) {
  const std::string own = own_address(cluster);
  if (own.empty()) return cluster.local_world >= cluster.world ? "127.0.0.1:0" : comm::any_host() + ":0";
  const std::string host = own.substr(0, own.rfind(':'));
  return (is_loopback(host) ? host : comm::any_host()) + own.substr(own.rfind(':'));
}

std::string data_ports(const proto::Job& job) {
  return ":" + (job.strategy().data_ports().empty() ? "0" : job.strategy().data_ports());
}

std::string own_host(const ClusterSpec& cluster) {
  if (cluster.local_world >= cluster.world) return "127.0.0.1";
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

void exchange_addresses(ClusterSpec& cluster, const std::string& own, const WaitContext& wait) {
  if (cluster.addresses_known() || cluster.single_machine()) return;
  const std::vector<Task> tasks = cluster.tasks();
  const auto session = comm::MpiSession::start();
  if (session->size() != static_cast<int>(tasks.size()))
    throw InvalidArgument("the addresses of the cluster's " + std::to_string(tasks.size()) +
                          " tasks are not known, and MPI has " + std::to_string(session->size()) +
                          " ranks to ask: give --cluster or TF_CONFIG");
  const std::vector<std::string> all = session->exchange(own, wait);
  for (std::size_t r = 0; r < tasks.size(); ++r) cluster.job(tasks[r].type)[tasks[r].index] = all[r];
}

struct Bootstrap::Impl {
  std::unique_ptr<comm::RendezvousServer> rendezvous_server;
  std::shared_ptr<comm::Rendezvous> rendezvous;
  std::unique_ptr<ElasticWorld> elastic;
  // What replica() makes its peers of.
  comm::CommunicatorOptions options;
  std::function<std::shared_ptr<comm::Rendezvous>()> meet;
  std::vector<std::unique_ptr<comm::Communicator>> local;  // of replicas that are all of this process
  std::shared_ptr<comm::Gate> gate;                        // of those that meet on GPUs
};

namespace {

comm::Backend backend_of(const proto::Job& job, int world) {
  switch (job.strategy().backend()) {
    case proto::Strategy::MPI:
      return comm::Backend::Mpi;
    case proto::Strategy::NCCL:
      return comm::Backend::Nccl;
    default:
      return world == 1 ? comm::Backend::Local : comm::Backend::Ring;
  }
}

std::unique_ptr<ps::PsClient> connect_servers(const proto::Job& job, const ClusterSpec& cluster,
                                              const comm::Security& security, const WaitContext& wait) {
  ps::PsClient::Options options;
  for (const auto& [index, address] : cluster.ps) options.servers.push_back(address);
  options.worker = cluster.rank.value_or(0);
  options.workers = cluster.world;
  options.job = job.name();
  options.incarnation = incarnation();
  options.deadline =
      std::chrono::milliseconds(static_cast<std::int64_t>(job.strategy().deadline_seconds() * 1000));
  options.security = security;
  return ps::PsClient::connect(std::move(options), wait);
}

}  // namespace

Bootstrap::Bootstrap(const proto::Job& job, ClusterSpec cluster, const Accelerator* device,
                     const WaitContext& wait, int replicas)
    : impl_(std::make_unique<Impl>()) {
  auto mpi = hold_mpi(job, cluster);
  const comm::Security security = job_security(job, cluster, wait);
  peers_.rank = cluster.rank.value_or(0);
  peers_.world = cluster.world;
  if (elastic_limits(job)) {
    mpi.reset();
    begin_elastic(job, cluster, security, device ? device->options().ordinal : 0);
    return;
  }
  const comm::Backend backend = backend_of(job, peers_.world);
  const bool meets = has_communicator(job) && peers_.world > 1 &&
                     (backend == comm::Backend::Ring || backend == comm::Backend::Nccl);
  // The leader hosts the rendezvous at its address of the cluster spec. The others need no address there:
  // each tells its own at the rendezvous.
  std::string own;
  if (meets && peers_.leader()) {
    impl_->rendezvous_server =
        comm::RendezvousServer::start({.listen = listen_address(cluster), .security = security});
    const std::string bound = impl_->rendezvous_server->address();
    own = own_host(cluster) + bound.substr(bound.rfind(':'));
  }
  if (has_servers(job) || (meets && cluster.address(cluster.leader()).value_or("").empty()))
    exchange_addresses(cluster, own, wait);
  if (backend != comm::Backend::Mpi || !has_communicator(job)) mpi.reset();
  if (has_servers(job)) peers_.servers = connect_servers(job, cluster, security, wait);
  if (takes_batches(job))
    peers_.queue = ps::make_queue_link({cluster.ps.begin()->second, job.name(), incarnation(), security});
  if (!has_communicator(job)) return;

  comm::CommunicatorOptions& options = impl_->options;
  options.backend = backend;
  options.ring.rank = peers_.rank * replicas;
  options.ring.size = peers_.world * replicas;
  options.others_in_mpi = has_servers(job);
  if (device) options.device = device->options().ordinal;
  if (meets) {
    const std::string leader = cluster.address(cluster.leader()).value_or("");
    impl_->meet = [address = leader.empty() ? own : leader,
                   scope = comm::RendezvousScope{job.name(), incarnation()}, security] {
      return std::shared_ptr<comm::Rendezvous>(comm::make_grpc_rendezvous(address, scope, security));
    };
    const std::string self = own_address(cluster);
    const std::string host = self.empty() ? own_host(cluster) : self.substr(0, self.rfind(':'));
    options.ring.listen = (is_loopback(host) ? host : comm::any_host()) + data_ports(job);
    options.ring.advertise_host = host;
    options.ring.security = security;
  } else if (backend == comm::Backend::Nccl || replicas > 1) {
    impl_->meet = [store = std::make_shared<comm::RendezvousStore>(),
                   scope = comm::RendezvousScope{job.name(), incarnation()}] {
      return std::shared_ptr<comm::Rendezvous>(comm::make_in_process_rendezvous(store, scope));
    };
  }
  if (replicas > 1) {
    if (backend == comm::Backend::Local) impl_->local = comm::make_local_group(replicas);
    if (backend == comm::Backend::Nccl) impl_->gate = std::make_shared<comm::Gate>(replicas);
    return;
  }
  if (impl_->meet) impl_->rendezvous = impl_->meet();
  if (meets) peers_.rendezvous = impl_->rendezvous;
  options.rendezvous = impl_->rendezvous.get();
  peers_.communicator = comm::make_communicator(options, wait);
  log_info("communicator: {} of {} ranks", peers_.communicator->backend(), peers_.world);
  if (!has_homes_of_rows(job, peers_.world)) return;
  comm::CommunicatorOptions homes = options;
  homes.backend = comm::Backend::Ring;
  homes.ring.name = "homes";
  homes_ = comm::make_communicator(homes, wait);
}

Peers Bootstrap::replica(int index, const Accelerator* device, const WaitContext& wait) const {
  Peers peers;
  comm::CommunicatorOptions options = impl_->options;
  options.ring.rank += index;
  peers.rank = options.ring.rank;
  peers.world = options.ring.size;
  peers.rendezvous = impl_->meet();
  options.rendezvous = peers.rendezvous.get();
  if (device) options.device = device->options().ordinal;
  std::unique_ptr<comm::Communicator> made = options.backend == comm::Backend::Local
                                                 ? std::move(impl_->local.at(static_cast<std::size_t>(index)))
                                                 : comm::make_communicator(options, wait);
  if (impl_->gate) made = comm::make_gated_communicator(std::move(made), impl_->gate, index);
  // It goes before the rendezvous.
  peers.communicator = {made.release(), [meets = peers.rendezvous](comm::Communicator* its) { delete its; }};
  if (index == 0) log_info("communicator: {} of {} replicas", peers.communicator->backend(), peers.world);
  return peers;
}

void Bootstrap::begin_elastic(const proto::Job& job, const ClusterSpec& cluster,
                              const comm::Security& security, int device) {
  const ElasticLimits limits = *elastic_limits(job);
  const std::string self = own_address(cluster);
  const std::string host = self.empty() ? own_host(cluster) : self.substr(0, self.rfind(':'));
  const std::string who = job_text(job);
  const std::string name = fmt::format("{} ({}, process {})", task_name(cluster.task), host, ::getpid());
  std::string leader = cluster.address(cluster.leader()).value_or("");
  ElasticOptions options;
  options.leads = peers_.leader();
  options.form_time = limits.silence;
  if (options.leads) {
    const auto first_wait =
        std::chrono::milliseconds(static_cast<std::int64_t>(job.strategy().start_deadline_seconds() * 1000));
    comm::HostedMembership hosted = comm::host_membership(who, name,
                                                          {.min_workers = limits.min_workers,
                                                           .max_workers = limits.max_workers,
                                                           .listed = cluster.world,
                                                           .first_wait = first_wait,
                                                           .wait = limits.wait,
                                                           .silence = limits.silence});
    impl_->rendezvous_server = comm::RendezvousServer::start(
        {.listen = listen_address(cluster), .security = security, .add_services = hosted.add_service});
    const std::string bound = impl_->rendezvous_server->address();
    leader = host + bound.substr(bound.rfind(':'));
    log_info("the job is elastic, of {} to {} workers: others join it with --join {}", limits.min_workers,
             limits.max_workers, leader);
    options.attendance = std::move(hosted.attendance);
  } else {
    options.attendance = comm::attend({leader, who, name, peers_.rank, security, limits.silence});
  }
  options.communicator.backend =
      job.strategy().backend() == proto::Strategy::NCCL ? comm::Backend::Nccl : comm::Backend::Ring;
  options.communicator.device = device;
  options.communicator.ring.listen = (is_loopback(host) ? host : comm::any_host()) + data_ports(job);
  options.communicator.ring.advertise_host = host;
  options.communicator.ring.security = security;
  options.meet = [leader, job_name = job.name(), security](std::uint64_t generation) {
    return std::shared_ptr<comm::Rendezvous>(
        comm::make_grpc_rendezvous(leader, {job_name + "#world", generation}, security));
  };
  impl_->elastic = std::make_unique<ElasticWorld>(std::move(options), peers_);
}

ElasticWorld* Bootstrap::elastic() const { return impl_->elastic.get(); }

Bootstrap::~Bootstrap() {
  impl_->elastic.reset();
  peers_ = {};  // before the rendezvous goes
}

}  // namespace braid::worker
