#include "worker/run/fed_steps.h"

#include <utility>

#include "base/cpu.h"
#include "base/error.h"
#include "engine/exec/runtime.h"
#include "engine/program/program.h"
#include "proto/job.pb.h"
#include "worker/evaluation/forward_job.h"
#include "worker/job/schedule.h"
#include "worker/process/stop_signal.h"
#include "worker/run/built_step.h"
#include "worker/run/finite_loss.h"
#include "worker/run/input.h"
#include "worker/watch/monitor.h"

namespace braid::worker {
namespace {

constexpr std::chrono::hours kStepTime{1};

/// A job of one process whose batches are made by nobody else.
proto::Job fed_job(proto::Job job) {
  if (job.strategy().kind() != proto::Strategy::LOCAL)
    throw InvalidArgument("single steps are of one process: strategy.kind must be LOCAL");
  job.mutable_staging()->set_enabled(false);
  job.mutable_staging()->set_auto_stage(false);
  job.mutable_checkpoint()->Clear();
  return job;
}

}  // namespace

struct FedSteps::Impl {
  Impl(const proto::Job& asked, RunHooks h)
      : hooks(std::move(h)),
        forward(fed_job(asked)),
        job(*forward.job),
        monitor({.task = "worker 0", .role = "worker", .job = job.name(), .listen = ""}) {
    options.hooks = &hooks;
    const RunContext run{job, options, peers, *forward.runtime, monitor, stop};
    input = load_input(run, std::nullopt, WaitContext::with_timeout(kStepTime));
    const WaitContext wait = WaitContext::with_timeout(kStepTime);
    built.emplace(run, input, wait);
    built->strategy->agree_on_plan(built->agreed_hash, wait);
    done = built->strategy->start(nullptr, false, hooks.first_step, wait);
    for (const ProgramFeed& feed : built->instance->program().feeds)
      feeds.push_back({feed.name, feed.dtype, feed.shape});
    hooks.initial.clear();
    input.model.initial.clear();
  }

  RunHooks hooks;
  ForwardJob forward;  // the runtime
  const proto::Job& job;
  TrainOptions options;
  const Peers peers;
  const StopFlag stop;
  Monitor monitor;
  RunInput input;
  std::optional<BuiltStep> built;
  std::vector<Feed> feeds;
  std::uint64_t done = 0;
};

FedSteps::FedSteps(const proto::Job& job, RunHooks hooks)
    : impl_(std::make_unique<Impl>(job, std::move(hooks))) {}
FedSteps::~FedSteps() = default;

const std::vector<FedSteps::Feed>& FedSteps::feeds() const { return impl_->feeds; }
std::uint64_t FedSteps::done() const { return impl_->done; }

StepOutcome FedSteps::step(std::vector<Tensor> batch) {
  Impl& self = *impl_;
  StepRequest request;
  request.params.step = self.done;
  const double rate = learning_rate(self.job, &self.hooks, self.done, self.input.total_steps);
  request.params.learning_rate = rate;
  request.params.grad_scale = self.built->strategy->gradient_scale();
  request.params.seed = random_seed(self.job, 0);
  request.feeds = std::move(batch);
  const WaitContext wait = WaitContext::with_timeout(kStepTime);
  const StepResult result = self.built->instance->run(std::move(request), wait);
  const float loss = result.fetches[0].data<float>()[0];
  ++self.done;
  const TrainingGraph& training = self.built->training;
  const std::size_t at = training.stop_votes.valid() ? 2 : 1;
  const bool skipped = training.skipped.valid() && result.fetches[at].data<float>()[0] != 0;
  if (!skipped) require_finite_loss(self.job, result.step, loss, rate);
  return {result.step, loss, result.seconds, skipped};
}

std::map<std::string, Tensor> FedSteps::values() const {
  return copy_values(impl_->forward.runtime->variables());
}

std::map<std::string, Tensor> copy_values(const VariableStore& store) {
  std::map<std::string, Tensor> values;
  for (const std::string& name : store.names())
    if (const auto value = store.read(name)) values.emplace(name, value->clone());
  return values;
}

}  // namespace braid::worker
