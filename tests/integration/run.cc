#include "tests/integration/run.h"

#include <stdlib.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/eventually.h"
#include "tests/support/made_data.h"

namespace braid::integration {
namespace {

using nlohmann::json;

Job small(const std::string& file, Path data, std::vector<std::string> set) {
  // On the CPU also where there are GPUs: tests/gpu has the jobs for those.
  set.insert(set.end(), {"runtime.intra_op_threads=1", "runtime.device=CPU", "evaluation.enabled=false"});
  return {file, std::move(data), std::move(set)};
}

/// TF_CONFIG of one task.
std::string tf_config(const std::vector<std::string>& addresses, Cluster::Shape shape, const char* type,
                      int index) {
  const auto first_server = addresses.begin() + shape.workers;
  json cluster;
  cluster["worker"] = std::vector<std::string>(addresses.begin(), first_server);
  if (shape.servers > 0) cluster["ps"] = std::vector<std::string>(first_server, addresses.end());
  return json{{"cluster", cluster}, {"task", {{"type", type}, {"index", index}}}}.dump();
}

}  // namespace

Job Job::with(std::vector<std::string> more) const {
  Job job = *this;
  job.set.insert(job.set.end(), more.begin(), more.end());
  return job;
}

std::vector<std::string> Job::arguments() const {
  std::vector<std::string> all{"train", "--job", (Path(BRAID_SOURCE_DIR) / "examples/jobs" / file).string()};
  if (!data.empty()) all.insert(all.end(), {"--data-dir", data.string()});
  for (const std::string& assignment : set) all.insert(all.end(), {"--set", assignment});
  return all;
}

Job linear_regression() { return small("linear_regression.pbtxt", "", {}); }
Job mlp() {
  return small("fashion_mnist_mlp.pbtxt", image_folder(),
               {"input.global_batch_size=64", "model.hidden=64,32"});
}
Job cnn() {
  return small("fashion_mnist_cnn.pbtxt", image_folder(),
               {"input.global_batch_size=16", "model.hidden=4,8,16"});
}
Job wide_deep() { return small("wide_deep_adult.pbtxt", census_folder(), {"input.global_batch_size=64"}); }
Job dlrm(const Path& data) {
  return small("dlrm_criteo.pbtxt", data, {"input.global_batch_size=64", "model.hash_buckets=1000"});
}
Job mmoe() {
  return small(
      "mmoe_generated.pbtxt", "",
      {"input.global_batch_size=8", "model.hidden=8,4", "model.experts=8", "input.generator.rows=2000"});
}

std::vector<std::string> braid(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), BRAID_BINARY);
  return arguments;
}

std::vector<std::string> under_mpirun(int ranks, std::vector<std::string> arguments) {
  // All ranks are on this host, which may have no ssh.
  std::vector<std::string> all{"mpirun", "--allow-run-as-root", "--oversubscribe",
                               "--mca",  "plm_rsh_agent",       "true",
                               "-np",    std::to_string(ranks)};
  for (std::string& word : braid(std::move(arguments))) all.push_back(std::move(word));
  return all;
}

bool mpirun_is_missing() { return std::system("command -v mpirun >/dev/null 2>&1") != 0; }

Result result_of(const Process& process) {
  const std::string out = process.out();
  const std::string mark = "result: ";
  const std::size_t at = out.rfind(mark);
  if (at == std::string::npos) {
    ADD_FAILURE() << "no result in:\n" << out << process.err();
    return {};
  }
  const std::size_t begin = at + mark.size();
  const json line = json::parse(out.substr(begin, out.find('\n', begin) - begin));
  Result result{line["steps"], line["last_step"], line["loss"], std::nullopt, {}, line["exit"]};
  for (const char* name : {"accuracy", "auc", "rmse"})
    if (line.contains(name)) result.quality = line[name].get<double>();
  for (const char* name : {"accuracy_of_tasks", "auc_of_tasks"})
    if (line.contains(name)) result.tasks = line[name].get<std::map<std::string, double>>();
  return result;
}

bool reaches_step(Process& process, std::uint64_t least) {
  const auto reached = [&] {
    const std::string text = process.err();
    for (std::size_t at = text.rfind("step "); at != std::string::npos;
         at = at == 0 ? std::string::npos : text.rfind("step ", at - 1)) {
      unsigned long long step = 0, of = 0;
      if (std::sscanf(text.c_str() + at, "step %llu/%llu", &step, &of) == 2) return step >= least;
    }
    return false;
  };
  bool ended = false;
  eventually([&] { return reached() || (ended = process.wait(std::chrono::milliseconds(0)).has_value()); },
             kLongRun);
  return !ended && reached();
}

std::vector<LoggedStep> read_steps(const Path& file) {
  std::ifstream in(file);
  EXPECT_TRUE(in) << file;
  std::vector<LoggedStep> steps;
  for (std::string line; std::getline(in, line);) {
    const json fields = json::parse(line, nullptr, false);
    if (fields.is_discarded()) break;  // the line that a kill cut
    steps.push_back({fields["step"], fields["loss"]});
  }
  return steps;
}

std::vector<float> losses_of(const Path& file, std::uint64_t first) {
  std::vector<float> losses;
  for (const LoggedStep& logged : read_steps(file)) {
    EXPECT_EQ(logged.step, first + losses.size()) << file;
    losses.push_back(logged.loss);
  }
  return losses;
}

Cluster::Cluster(const Path& directory, const Job& job, Shape shape, std::vector<std::string> arguments)
    : directory_(directory),
      shape_(shape),
      ports_(shape.workers + shape.servers),
      command_(braid(job.arguments())) {
  std::filesystem::create_directories(directory);
  command_.insert(command_.end(), {"--set", "metrics.steps_file=" + (directory / "%r.steps").string()});
  command_.insert(command_.end(), arguments.begin(), arguments.end());
  for (int s = 0; s < shape.servers; ++s)
    servers_.push_back(std::make_unique<Process>(
        command_, Variables{{"TF_CONFIG", tf_config(ports_.addresses(), shape, "ps", s)}},
        directory / ("ps-" + std::to_string(s))));
  for (int w = 0; w < shape.workers; ++w)
    workers_.push_back(std::make_unique<Process>(command_, worker_variables(w),
                                                 directory / ("worker-" + std::to_string(w))));
}

Variables Cluster::worker_variables(int worker) const {
  if (shape_.workers == 1 && shape_.servers == 0) return {};
  return {{"TF_CONFIG", tf_config(ports_.addresses(), shape_, "worker", worker)}};
}

void Cluster::start_again(int worker, const std::vector<std::string>& arguments) {
  std::vector<std::string> command = command_;
  command.insert(command.end(), arguments.begin(), arguments.end());
  workers_[static_cast<std::size_t>(worker)] = std::make_unique<Process>(
      command, worker_variables(worker), directory_ / ("worker-" + std::to_string(worker) + "-again"));
}

const std::string& Cluster::server_address(int index) const {
  return ports_.addresses()[static_cast<std::size_t>(shape_.workers + index)];
}

std::vector<int> Cluster::exit_codes(std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  std::vector<int> codes;
  for (auto* tasks : {&workers_, &servers_})
    for (auto& task : *tasks) {
      const auto left = end - std::chrono::steady_clock::now();
      codes.push_back(task->exit_code(std::chrono::duration_cast<std::chrono::milliseconds>(left)));
    }
  return codes;
}

void Cluster::expect_success() {
  const std::vector<int> codes = exit_codes();
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const Process& task = i < workers_.size() ? *workers_[i] : *servers_[i - workers_.size()];
    EXPECT_EQ(codes[i], 0) << task.err() << task.out();
  }
}

Path Cluster::steps_file(int worker) const {
  return directory_ / ("worker-" + std::to_string(worker) + ".steps");
}

std::vector<double> Cluster::mean_losses(std::uint64_t first) const {
  std::vector<double> means;
  for (int w = 0; w < shape_.workers; ++w) {
    const std::vector<float> losses = losses_of(steps_file(w), first);
    means.resize(std::max(means.size(), losses.size()));
    EXPECT_EQ(losses.size(), means.size()) << "worker " << w;
    for (std::size_t i = 0; i < losses.size(); ++i) means[i] += double{losses[i]} / shape_.workers;
  }
  return means;
}

IntegrationTest::IntegrationTest() {
  std::string name = ::testing::TempDir() + "braid_integration_XXXXXX";
  directory_ = ::mkdtemp(name.data());
}

IntegrationTest::~IntegrationTest() {
  if (!HasFailure()) std::filesystem::remove_all(directory_);
}

std::string IntegrationTest::write(const std::string& name, const std::string& bytes) const {
  std::ofstream(directory_ / name, std::ios::binary) << bytes;
  return path(name);
}

std::unique_ptr<Process> IntegrationTest::run(const std::string& name, std::vector<std::string> arguments,
                                              const Variables& variables) {
  auto process = std::make_unique<Process>(braid(std::move(arguments)), variables, directory_ / name);
  process->exit_code();
  return process;
}

std::vector<float> IntegrationTest::train(const std::string& name, const Job& job) {
  Cluster alone(directory_ / name, job, {});
  alone.expect_success();
  return losses_of(alone.steps_file(0));
}

}  // namespace braid::integration
