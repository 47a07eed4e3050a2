// Servers and clients in one process, over real sockets of this host; workers are threads.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "launch/port_reservation.h"
#include "ps/client/ps_client.h"
#include "ps/server/ps_server.h"
#include "ps/server/requests.h"
#include "tests/ps/reference.h"

namespace braid::ps {

/// Far beyond what anything here takes, on a machine that is busy with other things.
inline WaitContext soon() { return WaitContext::with_timeout(std::chrono::seconds(60)); }

inline std::string scratch_path(const std::string& name) {
  static std::atomic<int> next{0};
  return ::testing::TempDir() + "braid-ps-" + std::to_string(::getpid()) + "-" + std::to_string(next++) +
         name;
}

class Cluster {
 public:
  struct Shape {
    int servers = 1;
    int workers = 1;
    bool unix_socket = false;
    std::chrono::milliseconds deadline{30000};
    comm::Security security{};
  };

  explicit Cluster(Shape shape) : shape_(shape), ports_(2 * shape.servers) {
    set_log_level(LogLevel::Error);
    for (int s = 0; s < shape.servers; ++s) {
      PsServer::Options options;
      options.index = s;
      options.count = shape.servers;
      options.grpc_listen = ports_.addresses()[static_cast<std::size_t>(2 * s)];
      options.data_listen = ports_.addresses()[static_cast<std::size_t>(2 * s + 1)];
      options.table_threads = 1 + s % 2;
      options.deadline = shape.deadline;
      options.security = shape.security;
      options.checkpoints = ::testing::TempDir();
      if (shape.unix_socket) options.unix_socket = scratch_path(".sock");
      servers_.push_back(PsServer::start(options));
    }
  }

  PsServer& server(int s) { return *servers_[static_cast<std::size_t>(s)]; }
  void stop_server(int s) { servers_[static_cast<std::size_t>(s)].reset(); }
  /// A server with empty tables on the same address.
  void restart_server(int s) {
    PsServer::Options options;
    options.index = s;
    options.count = shape_.servers;
    options.grpc_listen = server(s).grpc_address();
    options.data_listen = server(s).data_address();
    options.deadline = shape_.deadline;
    options.security = shape_.security;
    options.checkpoints = ::testing::TempDir();
    stop_server(s);
    servers_[static_cast<std::size_t>(s)] = PsServer::start(options);
  }

  std::unique_ptr<PsClient> client(int worker, std::uint64_t incarnation = 1) {
    PsClient::Options options;
    for (auto& server : servers_) options.servers.push_back(server->grpc_address());
    options.worker = worker;
    options.workers = shape_.workers;
    options.job = "test";
    options.incarnation = incarnation;
    options.deadline = shape_.deadline;
    options.security = shape_.security;
    return PsClient::connect(options, soon());
  }

  /// body(worker, client) on a thread for each worker; the first exception is thrown again.
  void run_workers(const std::function<void(int, PsClient&)>& body) {
    std::vector<ErrorPtr> errors(static_cast<std::size_t>(shape_.workers));
    {
      std::vector<std::jthread> threads;
      for (int w = 0; w < shape_.workers; ++w)
        threads.emplace_back([&, w] {
          try {
            auto worker = client(w);
            body(w, *worker);
          } catch (...) {
            errors[static_cast<std::size_t>(w)] = capture_current_exception("worker " + std::to_string(w));
          }
        });
    }
    for (const ErrorPtr& error : errors)
      if (error) throw_error(*error);
  }

 private:
  Shape shape_;
  launch::PortReservation ports_;  // kept while servers stop and come back
  std::vector<std::unique_ptr<PsServer>> servers_;
};

/// Sleeps up to a millisecond, differently each time.
inline void random_delay() {
  thread_local std::minstd_rand random(std::random_device{}());
  std::this_thread::sleep_for(std::chrono::microseconds(random() % 1000));
}

/// A small model: two dense tables that are split, two that are not, and an embedding.
inline TableSet small_model(const OptimizerSpec& optimizer, Consistency consistency, int workers) {
  TableSet set;
  set.dense = {{"w1", 300001}, {"b1", 17}, {"w2", 9000}, {"b2", 3}};
  set.sparse = {{"emb", 5, {InitKind::Uniform, -0.5F, 0.5F}, make_rng_key(9, "emb")}};
  set.optimizer = optimizer;
  set.consistency = consistency;
  set.workers = workers;
  return set;
}

inline constexpr std::int64_t kRows = 400;

inline std::vector<float> initial_dense(const DenseTableSpec& spec) {
  return random_floats("init " + spec.name, 0, static_cast<std::size_t>(spec.elements));
}
inline std::vector<float> initial_rows(const SparseTableSpec& spec) {
  std::vector<float> values(static_cast<std::size_t>(kRows * spec.dim));
  fill_initial(spec.init, spec.key, 0, values);
  return values;
}

/// The keys that a worker uses in a step: some are repeated, some belong to other workers too, sometimes
/// there are none.
inline std::vector<std::int64_t> keys_of(int worker, std::uint64_t step) {
  std::vector<std::int64_t> keys;
  if (worker == 1 && step % 3 == 1) return keys;
  std::vector<std::uint32_t> bits(60);
  fill_bits(make_rng_key(5, "keys" + std::to_string(worker), step), 0, bits);
  for (std::uint32_t b : bits) keys.push_back(b % kRows);
  for (int i = 0; i < 5; ++i) keys.push_back(keys[static_cast<std::size_t>(i)]);
  return keys;
}
inline std::vector<float> dense_gradient(const std::string& table, int worker, std::uint64_t step,
                                         std::int64_t count) {
  return random_floats(table + " of " + std::to_string(worker), step, static_cast<std::size_t>(count));
}
inline std::vector<float> row_gradients(int worker, std::uint64_t step, std::size_t count) {
  return random_floats("rows of " + std::to_string(worker), step, count);
}

}  // namespace braid::ps
