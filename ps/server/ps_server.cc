#include "ps/server/ps_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <thread>

#include "base/cpu.h"
#include "base/error.h"
#include "base/log.h"
#include "ps/server/control_service.h"
#include "ps/server/data_service.h"

namespace braid::ps {
namespace {

constexpr auto kStopTime = std::chrono::seconds(5);

int port_of(const std::string& address) {
  const auto colon = address.rfind(':');
  int port = 0;
  std::from_chars(address.data() + colon + 1, address.data() + address.size(), port);
  return port;
}

}  // namespace

int auto_table_threads(int cores, int servers, bool workers) {
  constexpr int kMost = 32;
  const int part = cores / (std::max(servers, 1) + (workers ? 1 : 0));
  return std::clamp(part > 2 ? part - 1 : part, 1, kMost);
}

namespace {

ServerCore::Options core_options(const PsServer::Options& options) {
  ServerCore::Options out;
  out.index = options.index;
  out.count = options.count;
  out.table_threads =
      options.table_threads > 0 ? options.table_threads : auto_table_threads(usable_cores(), 1, false);
  out.heartbeat_timeout = options.deadline;
  out.apply_updates = options.apply_updates;
  return out;
}

}  // namespace

struct PsServer::Impl {
  explicit Impl(const Options& given) : options(given), core(core_options(given)) {}

  void listen() {
    data = comm::TransportServer::start(
        {options.data_listen, options.io_threads, kMaxPayload, options.security}, make_data_handler(core, 0));
    listen_local();
    ControlServiceOptions control_options;
    control_options.listen = options.grpc_listen;
    control_options.index = options.index;
    control_options.data_port = port_of(data->address());
    control_options.unix_path = local ? options.unix_socket : "";
    control_options.shared_memory = options.shared_memory;
    control_options.deadline = options.deadline;
    control_options.security = options.security;
    control_options.checkpoints = options.checkpoints;
    control_options.on_shutdown = [this](JobEnd how) { ask_to_end(how); };
    control = std::make_unique<ControlService>(core, std::move(control_options));
    timer = std::jthread([this](const std::stop_token& stop) { keep_time(stop); });
  }

  /// Workers of this host do without it where it cannot be had, as on a read-only file system.
  void listen_local() {
    if (options.unix_socket.empty()) return;
    try {
      local = comm::TransportServer::start({(options.shared_memory ? "shm:" : "unix:") + options.unix_socket,
                                            options.io_threads,
                                            kMaxPayload,
                                            {{}, options.security.token}},
                                           make_data_handler(core, 1));
    } catch (const Unavailable& error) {
      log_warning("[ps] server {}: no socket for workers of this host: {}", options.index, error.message());
    }
  }

  void ask_to_end(std::optional<JobEnd> how) {
    std::lock_guard lock(mutex);
    ended = true;
    if (how && (!job_end || *how > *job_end)) job_end = how;  // the worst counts
    changed.notify_all();
  }

  void keep_time(const std::stop_token& stop) {
    const auto longest = std::clamp<std::chrono::milliseconds>(
        options.deadline / 40, std::chrono::milliseconds(5), std::chrono::milliseconds(100));
    auto period = longest;
    std::unique_lock lock(mutex);
    while (!stop.stop_requested()) {
      changed.wait_for(lock, stop, period, [] { return false; });
      lock.unlock();
      core.tick(Clock::now());
      const auto soon = core.tick_period();
      lock.lock();
      period = std::min(longest, soon);
    }
  }

  static constexpr std::uint64_t kMaxPayload = std::uint64_t{4} << 30;

  const Options options;
  ServerCore core;
  std::unique_ptr<comm::TransportServer> data;
  std::unique_ptr<comm::TransportServer> local;
  std::unique_ptr<ControlService> control;
  std::mutex mutex;
  std::condition_variable_any changed;
  bool ended = false;             // guarded by mutex
  std::optional<JobEnd> job_end;  // guarded by mutex
  std::jthread timer;
};

PsServer::PsServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

std::unique_ptr<PsServer> PsServer::start(Options options) {
  if (options.count < 0 || options.index < 0 || (options.count > 0 && options.index >= options.count))
    throw InvalidArgument(fmt::format("[ps] there is no server {} of {}", options.index, options.count));
  auto impl = std::make_unique<Impl>(options);
  impl->listen();
  if (options.metrics != nullptr)
    ServerCounters::publish(impl->core.counters(), *options.metrics, options.index);
  log_info("[ps] server {}{}: control on {}, data on {}", options.index,
           options.count > 0 ? fmt::format(" of {}", options.count) : "", impl->control->address(),
           impl->data->address());
  return std::unique_ptr<PsServer>(new PsServer(std::move(impl)));
}

PsServer::~PsServer() {
  try {
    stop(WaitContext::with_timeout(kStopTime));
  } catch (...) {
    log_error("{}", capture_current_exception()->message);
  }
}

std::string PsServer::grpc_address() const { return impl_->control->address(); }
std::string PsServer::data_address() const { return impl_->data->address(); }
ServerCore& PsServer::core() { return impl_->core; }

void PsServer::wait_shutdown(const WaitContext& wait) {
  std::unique_lock lock(impl_->mutex);
  wait_on(impl_->changed, lock, wait, fmt::format("[ps] server {}", impl_->options.index),
          [&] { return impl_->ended; });
}

std::optional<JobEnd> PsServer::job_end() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->job_end;
}

void PsServer::stop(const WaitContext& wait) {
  impl_->ask_to_end(std::nullopt);
  if (impl_->timer.joinable()) {
    impl_->timer.request_stop();
    impl_->timer.join();
  }
  impl_->control->stop(wait);
  impl_->data->stop(wait);
  if (impl_->local) impl_->local->stop(wait);
}

}  // namespace braid::ps
