#include "worker/run/event_log.h"

#include <algorithm>
#include <map>
#include <span>
#include <vector>

#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/exec/runtime.h"
#include "engine/program/program.h"
#include "proto/job.pb.h"
#include "worker/strategies/strategy.h"
#include "worker/watch/step_log.h"

namespace braid::worker {
namespace {

constexpr std::chrono::milliseconds kBetweenSteps{200};
constexpr std::int64_t kMostElements = 1 << 20;  // of a variable whose values are drawn
constexpr std::size_t kMostHistograms = 200;

std::vector<EventGraphNode> graph_of(const Program& program) {
  std::vector<EventGraphNode> nodes;
  for (const ProgramOp& op : program.ops) {
    EventGraphNode& node = nodes.emplace_back();
    node.name = op.name;
    node.op = op.op;
    node.device = "/device:" + program.streams[static_cast<std::size_t>(op.stream)].name;
    std::vector<int> from;
    for (const Operand& input : op.inputs)
      if (input.producer >= 0 && std::find(from.begin(), from.end(), input.producer) == from.end())
        from.push_back(input.producer);
    for (const int each : from) node.inputs.push_back(program.ops[static_cast<std::size_t>(each)].name);
    for (const int each : op.deps)
      if (std::find(from.begin(), from.end(), each) == from.end())
        node.inputs.push_back("^" + program.ops[static_cast<std::size_t>(each)].name);
  }
  return nodes;
}

}  // namespace

EventLog::EventLog(const RunContext& run) : run_(run) {
  const auto variable = env_string("BRAID_TENSORBOARD");
  field_ = variable ? "BRAID_TENSORBOARD" : "metrics.tensorboard_dir";
  const std::string directory = variable.value_or(run.job.metrics().tensorboard_dir());
  if (directory.empty() || !run.options.speaks() ||
      (!run.peers.leader() && directory.find("%r") == std::string::npos))
    return;
  try {
    file_ = std::make_unique<EventFile>(with_role(directory, run.options.role));
  } catch (const Error& error) {
    throw InvalidArgument(std::string(field_) + ": " + error.message());
  }
  log_info("tensorboard: {}", file_->path().string());
}

void EventLog::write(const std::function<void(EventFile&)>& add) {
  if (!file_) return;
  try {
    add(*file_);
  } catch (const Error& error) {
    log_warning("{}: {}; the file ends here", field_, error.message());
    file_.reset();
  }
}

void EventLog::begin(const Program& program) {
  const proto::Job& job = run_.job;
  write([&](EventFile& file) {
    file.graph(graph_of(program));
    file.text("job", "```\n" + job.DebugString() + "\n```");
    file.hyper_parameters({{"learning_rate", job.optimizer().learning_rate()},
                           {"global_batch_size", static_cast<double>(job.input().global_batch_size())},
                           {"seed", static_cast<double>(job.seed())},
                           {"workers", run_.peers.world},
                           {"embedding_dim", static_cast<double>(job.model().embedding_dim())},
                           {"dropout", job.model().dropout()}},
                          {{"job", job.name()},
                           {"model", job.model().name()},
                           {"optimizer", proto::Optimizer::Kind_Name(job.optimizer().kind())},
                           {"schedule", proto::Schedule::Kind_Name(job.schedule().kind())},
                           {"strategy", proto::Strategy::Kind_Name(job.strategy().kind())}});
  });
}

void EventLog::step(std::uint64_t step, double loss, double learning_rate, double examples_per_second) {
  if (!file_) return;
  last_step_ = step;
  last_loss_ = loss;
  unwritten_ = true;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  next_ = now + kBetweenSteps;
  unwritten_ = false;
  write([&](EventFile& file) {
    file.scalar("loss", step, loss);
    file.scalar("learning_rate", step, learning_rate);
    file.scalar("examples_per_second", step, examples_per_second);
  });
}

void EventLog::evaluated(std::uint64_t step, const MetricValues& measured, const VariableStore& variables) {
  write([&](EventFile& file) {
    for (const MetricValue& metric : measured.flat())
      file.scalar("evaluation/" + metric.name, step, metric.value);
    std::size_t drawn = 0;
    for (const std::string& name : variables.names()) {
      const auto value = variables.read(name);
      if (!value || value->dtype() != DType::Float32 || value->shape().elements() > kMostElements ||
          value->shape().elements() < 2 || ++drawn > kMostHistograms)
        continue;
      const Tensor& tensor = *value;
      file.histogram(name, step, tensor.data<float>());
    }
  });
}

void EventLog::finish() {
  if (unwritten_) write([&](EventFile& file) { file.scalar("loss", last_step_, last_loss_); });
  unwritten_ = false;
}

}  // namespace braid::worker
