#include "tests/watch/made_job.h"

#include <string>

namespace braid::watch {

Status made_worker(int index) {
  Status s;
  s.task = "worker " + std::to_string(index);
  s.role = "worker";
  s.job = "made";
  s.host = "node" + std::to_string(index);
  s.state = "training";
  s.time = 1000;
  s.uptime_seconds = 100;
  s.window_seconds = 5;
  s.leads = index == 0;
  s.trains = true;
  s.step = 1234;
  s.target_steps = 5000;
  s.steps_total = 1234;
  s.examples_total = 1234 * 64;
  s.steps_per_second = 100;
  s.examples_per_second = 6400;
  s.step_seconds = 0.01;
  s.step_seconds_total = 90;
  s.loss = 0.5;
  s.learning_rate = 0.01;
  s.metrics = {{"auc", 0.75}};
  s.metrics_step = 1000;
  s.batch_rows = 64;
  s.global_batch_rows = 128;
  s.stage_threads_set = 1;
  s.compute_busy_seconds = 90;
  s.compute_busy = 0.9;
  s.overlap = 1.6;
  for (const char* name : {"compute0", "compute1"}) {
    Stream stream;
    stream.name = name;
    stream.cause = "compute";
    stream.busy = 0.72;
    stream.wait = {{"compute", 0.1}, {"idle", 0.1}, {"input", 0.03}, {"pull", 0.05}};
    stream.node_seconds = 50e-6;
    s.streams.push_back(stream);
  }
  for (const char* name : {"pull", "push"}) {
    Stream stream;
    stream.name = stream.cause = name;
    stream.busy = 0.1;
    stream.wait = {{"idle", 0.9}};
    s.streams.push_back(stream);
  }
  s.stages.push_back({"stage", 1, 2, 1, 0.5, 1234, 10, 0.01});
  s.process = {4711, 90, 1.8, 4, std::uint64_t{1} << 30, std::uint64_t{8} << 30, 12};
  s.network = {1000, 2000, 1e6, 2e6};
  return s;
}

Status made_server(int index) {
  Status s;
  s.task = "ps " + std::to_string(index);
  s.role = "ps";
  s.job = "made";
  s.host = "store" + std::to_string(index);
  s.state = "serving";
  s.time = 1000;
  s.window_seconds = 5;
  Server& server = s.server.emplace();
  server.index = index;
  server.rows_made = 1'200'000;
  server.pushes_per_second = server.pulls_per_second = 200;
  server.rows_per_second = 12'000;
  server.bytes_per_second = 4e6;
  s.process = {4712, 10, 0.4, 4, std::uint64_t{1} << 30, std::uint64_t{8} << 30, 9};
  return s;
}

JobStatus made_job(int workers, int servers) {
  JobStatus job;
  job.job = "made";
  job.time = 1000;
  const auto add = [&](Status status) {
    Peer peer;
    peer.task = status.task;
    peer.address = "127.0.0.1:" + std::to_string(9000 + job.peers.size());
    peer.status = std::move(status);
    job.peers.push_back(std::move(peer));
  };
  for (int i = 0; i < workers; ++i) add(made_worker(i));
  for (int i = 0; i < servers; ++i) add(made_server(i));
  return job;
}

}  // namespace braid::watch
