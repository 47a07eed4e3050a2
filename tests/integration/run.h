// Jobs as users start them: `braid` with a job file and overrides, alone, as the tasks of a TF_CONFIG
// cluster, or under mpirun; and what such runs leave behind. Thread rule: one thread.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/port_reservation.h"
#include "tests/integration/process.h"

namespace braid::integration {

using Path = std::filesystem::path;

/// A job file of examples/jobs, where its data is, and overrides.
struct Job {
  std::string file;
  Path data;
  std::vector<std::string> set;

  Job with(std::vector<std::string> more) const;
  /// "train --job ... --set ..."
  std::vector<std::string> arguments() const;
};

/// Small variants of the shipped jobs, without evaluation, one intra-op thread. Their data are made when they
/// are first asked for (tests/support/made_data.h).
Job linear_regression();
Job mlp();                   // images, global batch 64
Job cnn();                   // images, global batch 16
Job wide_deep();             // rows in the layout of Adult, global batch 64
Job dlrm(const Path& data);  // global batch 64
Job mmoe();                  // made rows, global batch 8, eight small experts

/// {braid, arguments...}
std::vector<std::string> braid(std::vector<std::string> arguments);
std::vector<std::string> under_mpirun(int ranks, std::vector<std::string> arguments);
bool mpirun_is_missing();

/// What a "result: {...}" line says.
struct Result {
  std::uint64_t steps = 0;
  std::uint64_t last_step = 0;
  double loss = 0;
  std::optional<double> quality;
  std::map<std::string, double> tasks;  // quality of each, where the model has several
  int exit = -1;
};
/// Of the last such line of a process's output. Fails the test when there is none.
Result result_of(const Process& process);

/// Waits until a progress line of `process` ("step N/M ...") says step `least` or a later one. False when it
/// ends before that, or does not come so far within kLongRun.
bool reaches_step(Process& process, std::uint64_t least);

struct LoggedStep {
  std::uint64_t step = 0;
  float loss = 0;
};
/// The lines of a metrics.steps_file.
std::vector<LoggedStep> read_steps(const Path& file);
/// Their losses. Fails the test unless they are those of steps first, first + 1, ...
std::vector<float> losses_of(const Path& file, std::uint64_t first = 0);

/// The tasks of one job, each a process with its TF_CONFIG; alone when there is one worker and no server.
class Cluster {
 public:
  struct Shape {
    int workers = 1;
    int servers = 0;
  };
  /// Logs and steps files ("worker-0.steps") go to `directory`.
  Cluster(const Path& directory, const Job& job, Shape shape, std::vector<std::string> arguments = {});

  Process& worker(int index) { return *workers_[static_cast<std::size_t>(index)]; }
  Process& server(int index) { return *servers_[static_cast<std::size_t>(index)]; }
  /// A process in the place of a worker that has ended, with its command and `arguments`; its log is
  /// "worker-1-again".
  void start_again(int worker, const std::vector<std::string>& arguments = {});
  /// "127.0.0.1:port" of its entry in the cluster spec.
  const std::string& server_address(int index) const;
  /// Of all workers, then all servers.
  std::vector<int> exit_codes(std::chrono::milliseconds limit = kLongRun);
  /// Expects 0 of everybody, with their output when it is not so.
  void expect_success();
  Path steps_file(int worker) const;
  /// For each step the mean of the workers' losses.
  std::vector<double> mean_losses(std::uint64_t first = 0) const;

 private:
  Variables worker_variables(int worker) const;

  Path directory_;
  Shape shape_;
  launch::PortReservation ports_;
  std::vector<std::string> command_;
  std::vector<std::unique_ptr<Process>> servers_, workers_;  // servers stay as long as there are workers
};

/// A directory of its own for each test, removed when the test has passed.
class IntegrationTest : public ::testing::Test {
 protected:
  IntegrationTest();
  ~IntegrationTest() override;
  const Path& directory() const { return directory_; }
  /// Of a file in it.
  std::string path(const std::string& name) const { return (directory_ / name).string(); }
  /// Writes such a file, and gives its path.
  std::string write(const std::string& name, const std::string& bytes) const;

  /// Runs `arguments` of braid to the end.
  std::unique_ptr<Process> run(const std::string& name, std::vector<std::string> arguments,
                               const Variables& variables = {});
  /// Trains alone in directory()/name, expects exit 0, and gives the losses.
  std::vector<float> train(const std::string& name, const Job& job);

 private:
  Path directory_;
};

}  // namespace braid::integration
