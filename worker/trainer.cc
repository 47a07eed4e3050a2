#include "worker/trainer.h"

#include <fmt/format.h>

#include <cmath>
#include <deque>
#include <fstream>

#include "base/error.h"
#include "base/log.h"
#include "engine/exec/instance.h"
#include "engine/exec/placement_log.h"
#include "engine/exec/plan_report.h"
#include "engine/exec/program.h"
#include "engine/exec/trace.h"
#include "engine/ops/variable_init.h"
#include "proto/graph.pb.h"
#include "proto/job.pb.h"
#include "worker/checkpointer.h"
#include "worker/data.h"
#include "worker/evaluator.h"
#include "worker/input_staging.h"
#include "worker/job/job.h"
#include "worker/job/schedule.h"
#include "worker/progress.h"
#include "worker/stage_metrics.h"
#include "worker/step_log.h"
#include "worker/stop_grace.h"
#include "worker/stream_tuning.h"
#include "worker/training_program.h"

namespace braid::worker {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::chrono::nanoseconds to_ns(double seconds) {
  return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
}

/// Everything of one run, in the order in which it is made; destroyed in reverse.
class Run {
 public:
  Run(const proto::Job& job, const TrainOptions& options, const Peers& peers, Runtime& runtime,
      Monitor& monitor, const StopFlag& stop)
      : job_(job),
        options_(options),
        peers_(peers),
        seed_(random_seed(job, peers.rank)),
        runtime_(runtime),
        monitor_(monitor),
        stop_(stop),
        grace_(stop),
        step_log_(with_role(job.metrics().steps_file(), options.role)) {
    if (options_.resume && job_.checkpoint().directory().empty())
      throw InvalidArgument("--resume needs checkpoint.directory in the job");
    if (peers_.leader() && !job_.checkpoint().directory().empty())
      make_checkpoint_directory(job_.checkpoint().directory());
    // At the end would be late to learn of it.
    if (runtime_.trace() && !std::ofstream(trace_file(), std::ios::app))
      throw InvalidArgument("metrics.trace_file: cannot write '" + trace_file() + "'");
  }

  ~Run() { monitor_.watch_host({}); }

  TrainResult run() {
    try {
      load();
      build();
      begin();
    } catch (const Error& error) {
      if (!stop_.requested() || !ended_a_wait(error)) throw;
      return stopped_before_steps(job_, error);
    }
    try {
      loop();
    } catch (const Cancelled& error) {
      trace_failure();
      if (!grace_.over()) throw;
      throw Unavailable(
          fmt::format("asked to stop, and step {} still waits for its peers: {}", done_, error.message()));
    } catch (...) {
      trace_failure();
      throw;
    }
    return end();
  }

 private:
  void log_placement(const Program& program) const {
    DeviceName process;
    if (peers_.world > 1) {
      process.job = "worker";
      process.task = peers_.rank;
    }
    for (const std::string& line : placement_log(program, process)) log_info("{}", line);
  }

  void load() {
    const bool evaluates = peers_.leader() && !job_.evaluation().disabled();
    data_ = load_data(job_, options_.data_dir, evaluates, {peers_.rank, peers_.world});
    model_ = job_model(job_, *data_.train);
    total_ = total_steps(job_, *data_.train);
    batcher_ = std::make_unique<Batcher>(data_.train, model_.columns,
                                         training_batches(job_, peers_.rank, peers_.world));
  }

  void build() {
    strategy_ = make_strategy(job_, runtime_, peers_);
    const std::int64_t rows = job_.input().global_batch_size() / peers_.world;
    const auto first_feeds = [this](const Graph& graph, const CompileRequest& request) {
      std::vector<std::string> names;
      for (const FeedSpec& feed : request.feeds) names.push_back(feed.name);
      return InputStaging(job_, stages_, graph, *batcher_, model_.columns, names, runtime_).make({}).tensors;
    };
    const StreamTuning tuning{job_, peers_, runtime_, first_feeds, options_.resume, first_wait()};
    TrainingProgram made = make_training_program(
        job_, model_, *batcher_, rows, *strategy_,
        [&](const Graph& graph, const CompileRequest& request, const CompileOptions& options) {
          return tuned_streams(tuning, graph, request, options);
        });
    log_notes(*made.program);
    if (job_.runtime().log_device_placement()) log_placement(*made.program);
    training_ = std::move(made.training);
    plan_hash_ = braid::plan_hash(*made.program);
    steps_in_flight_ = made.program->steps_in_flight;
    std::vector<std::string> feeds;
    for (const ProgramFeed& feed : made.program->feeds) feeds.push_back(feed.name);
    input_ = std::make_unique<InputStaging>(job_, stages_, training_.graph, *batcher_, model_.columns, feeds,
                                            runtime_);
    instance_ = std::make_unique<Instance>(std::move(made.program), runtime_, instance_options(job_));
    for (const VariableInfo& variable : list_variables(training_.graph))
      if (auto value = runtime_.variables().read(variable.name)) {
        initialize_variable(training_.graph.node(variable.handle), job_.seed(), *value);
        runtime_.variables().write(variable.name, *value);
      }
    if (data_.test && model_.metric != ModelMetric::None) {
      // An evaluation is one stream of plain forward steps: nothing of it overlaps training.
      CompileOptions forward = training_compile_options(job_);
      forward.steps_in_flight = 1;
      forward.batch_siblings = BatchSiblings::Off;  // it takes the variables as training has laid them out
      const std::int64_t rows_at_once = job_.evaluation().batch_size();
      evaluator_ =
          std::make_unique<Evaluator>(model_, *strategy_, runtime_, forward, data_.test, rows_at_once);
    }
  }

  void begin() {
    const WaitContext wait = first_wait();
    strategy_->agree_on_plan(plan_hash_, wait);
    std::optional<CheckpointInfo> restored;
    if (!job_.checkpoint().directory().empty()) {
      checkpointer_ = std::make_unique<Checkpointer>(job_.checkpoint().directory(), job_.checkpoint().keep(),
                                                     job_.name(), plan_hash_, runtime_, *strategy_);
      if (job_.checkpoint().keep_best() > 0)
        checkpointer_->keep_best(job_.checkpoint().keep_best(), metric_name());
      if (options_.resume) restored = checkpointer_->newest();
    }
    if (restored) {
      checkpointer_->restore_local(*restored);
      first_ = restored->meta.step;
      const std::string& cursor = restored->meta.cursors.at("worker-0");
      const std::uint64_t ticket = Batcher::ticket_of(cursor);
      if (ticket != first_)
        throw DataLoss("checkpoint '" + restored->directory.string() + "': its input cursor is at batch " +
                       std::to_string(ticket) + ", its step is " + std::to_string(first_));
      if (cursor.find(' ') != std::string::npos && cursor != batcher_->cursor(ticket))
        log_warning("the input differs from the checkpoint's, which stood at '{}': it goes on at '{}'",
                    cursor, batcher_->cursor(ticket));
      if (restored->meta.plan_hash != plan_hash_)
        log_warning(
            "the plan differs from the checkpoint's (another build, job or number of streams): bits may "
            "differ from an uninterrupted run");
      log_info("resumed at step {} from {}", first_, restored->directory.string());
    }
    first_ = strategy_->start(restored ? &*restored : nullptr, options_.resume, first_, wait);
    if (options_.resume && !restored)
      log_warning("--resume: no checkpoint in '{}', starting at step {}", job_.checkpoint().directory(),
                  first_);
    if (!options_.resume && first_ == 0 && checkpointer_ && peers_.leader()) warn_of_older_run();
    next_ = done_ = first_;

    if (!job_.staging().disabled()) {
      Trace* const trace = runtime_.trace();
      for (int t = 0; trace && t < stage_options(job_).num_threads; ++t)
        trace->track("stage" + std::to_string(t));
      stage_ = input_->make_stage([trace](int thread, const StageInterval& interval) {
        if (trace)
          trace->track("stage" + std::to_string(thread))
              .add({"make batch", interval.begin, interval.end, interval.ticket});
      });
      stage_metrics_ = std::make_unique<StageMetrics>(monitor_.registry(), *stage_);
      stage_->start(first_);
    }
    monitor_.watch_host([this] { return activity(); });
  }

  /// Pruning goes by the step: checkpoints of a longer run outlive those of this one.
  void warn_of_older_run() const {
    const std::string& directory = job_.checkpoint().directory();
    if (const auto old = CheckpointStore(directory).newest())
      log_warning(
          "checkpoint.directory '{}' has checkpoints of another run, up to step {}, and this one begins at "
          "step 0; to go on from there: --resume",
          directory, old->meta.step);
  }

  void loop() {
    Progress progress(peers_.leader() ? Progress::choose_mode() : Progress::Mode::Off, first_, total_,
                      job_.metrics().progress_seconds());
    begin_ = saved_at_ = Clock::now();
    grace_.resume();
    while (done_ < total_ && !(stopping_ && instance_->in_flight() == 0)) {
      // No step beyond the next checkpoint or evaluation is in flight when that is due.
      const std::uint64_t border = next_border();
      while (!stopping_ && next_ < border && instance_->in_flight() < steps_in_flight_) start_step();
      if (instance_->in_flight() > 0) finish_step(progress);
      if (done_ == border && instance_->in_flight() == 0 && done_ < total_) at_border(progress);
    }
    grace_.pause();
    seconds_ += seconds_since(begin_);
    activity_ = activity();
    progress.finish();
  }

  std::uint64_t next_border() const {
    std::uint64_t border = total_;
    for (const std::uint64_t every :
         {checkpointer_ ? job_.checkpoint().every_steps() : 0, evaluation_interval()})
      if (every > 0) border = std::min(border, (done_ / every + 1) * every);
    return checkpoint_is_due() ? std::min(border, next_) : border;
  }

  /// By the leader's clock; the others wait for it where they need it next.
  bool checkpoint_is_due() const {
    const double every = job_.checkpoint().every_seconds();
    return checkpointer_ && peers_.leader() && every > 0 && next_ > first_ && saved_ != done_ &&
           seconds_since(saved_at_) >= every;
  }

  std::uint64_t evaluation_interval() const {
    return job_.evaluation().disabled() ? 0 : job_.evaluation().every_steps();
  }

  void start_step() {
    const auto before = Clock::now();
    Batch batch = next_batch();
    input_wait_ += seconds_since(before);
    StepRequest request;
    request.params.step = next_;
    request.params.learning_rate = learning_rate(job_, next_, total_);
    request.params.grad_scale = strategy_->gradient_scale();
    request.params.seed = seed_;
    request.feeds = std::move(batch.tensors);
    request.keep_alive = std::move(batch.block);
    strategy_->begin_step(next_, peer_wait());
    instance_->start(std::move(request), step_wait());
    cursors_.push_back(std::move(batch.cursor));
    ++next_;
  }

  Batch next_batch() {
    const Runtime::InputWait waiting(runtime_);
    return stage_ ? stage_->take(step_wait()) : input_->make({.ticket = next_, .thread = 0, .stop = {}});
  }

  void finish_step(Progress& progress) {
    const StepResult result = step_result();
    cursor_ = std::move(cursors_.front());
    cursors_.pop_front();
    loss_ = result.fetches[0].data<float>()[0];
    const std::int64_t rows = job_.input().global_batch_size() / peers_.world;
    grace_.step_ended(result.seconds);
    monitor_.record_step(result.step, loss_, rows, result.seconds);
    step_log_.write(result.step, loss_, rows, result.seconds);
    if (!std::isfinite(loss_))
      throw Internal("loss is " + std::to_string(loss_) + " at step " + std::to_string(result.step) +
                     "; --check-numerics names the node that makes the first such number");
    progress.update(result.step, loss_, rows * peers_.world);
    ++done_;
    const bool hears = training_.stop_votes.valid();
    if (hears && result.fetches[1].data<float>()[0] > 0) stopping_ = true;
    if (!(hears && training_.votes_for_others) && stop_.requested()) stopping_ = true;
  }

  StepResult step_result() {
    StepResult result;
    try {
      result = instance_->finish(step_wait());
    } catch (...) {
      strategy_->fail_step(done_);
      throw;
    }
    strategy_->end_step(result.step);
    return result;
  }

  void at_border(Progress& progress) {
    grace_.pause();
    seconds_ += seconds_since(begin_);
    std::optional<Stage::Pause> pause;
    if (stage_) pause.emplace(*stage_);
    if (evaluation_interval() > 0 && done_ % evaluation_interval() == 0 && evaluator_) {
      progress.finish();
      evaluate();
    }
    const std::uint64_t every = job_.checkpoint().every_steps();
    if (checkpointer_ && ((every > 0 && done_ % every == 0) || checkpoint_is_due())) save();
    begin_ = Clock::now();
    grace_.resume();
  }

  void save() {
    if (peers_.leader() && saved_ != done_)
      checkpointer_->save(done_, batcher_->cursor(Batcher::ticket_of(cursor_)), metrics(), start_wait());
    saved_ = done_;
    saved_at_ = Clock::now();
  }

  void evaluate() {
    if (!evaluator_ || evaluated_ == done_) return;
    strategy_->refresh_variables(start_wait());
    const auto quality = evaluator_->run(step_time(), stop_.token());
    if (!quality) {
      log_info("step {}: the evaluation is broken off: asked to stop", done_);
      return;
    }
    quality_ = quality;
    evaluated_ = done_;
    monitor_.record_evaluation(done_, metric_name(), quality_->value);
    log_info("step {}: {} {:.4f}", done_, metric_name(), quality_->value);
    for (const auto& [task, value] : quality_->tasks)
      log_info("step {}: {} of {} {:.4f}", done_, metric_name(), task, value);
  }

  TrainResult end() {
    if (stage_) stage_->cancel();
    bool terminated = stopping_ && done_ < total_;
    // Whether the last checkpoint is among the best is to be known when it is written.
    if (!terminated && job_.checkpoint().keep_best() > 0) evaluate();
    if (checkpointer_ && done_ > first_) save();
    strategy_->finish_steps(start_wait());
    if (!terminated) {
      evaluate();
      terminated = evaluator_ && evaluated_ != done_;
    }
    write_trace();
    if (peers_.leader() || peers_.world > 1) print_streams();
    strategy_->shut_down(terminated, start_wait());

    TrainResult result;
    result.job = job_.name();
    result.steps = done_ - first_;
    result.last_step = done_;
    result.loss = loss_;
    result.metric = model_.metric;
    if (quality_) {
      result.quality = quality_->value;
      result.tasks = quality_->tasks;
    }
    result.examples = static_cast<std::int64_t>(result.steps) * job_.input().global_batch_size();
    result.seconds = seconds_;
    result.input_wait_seconds = input_wait_;
    result.exit = terminated ? kExitTerminated : kExitSuccess;
    return result;
  }

  /// Of the runtime's streams and the stages' threads.
  HostActivity activity() const {
    HostActivity host = runtime_.activity();
    if (!stage_) return host;
    const StageStats stage = stage_->stats();
    for (std::size_t t = 0; t < stage.threads.size(); ++t) {
      StreamStats row;
      row.name = "stage" + std::to_string(t);
      row.busy_seconds = stage.threads[t].busy_seconds;
      row.wait_seconds["space"] = stage.threads[t].wait_seconds;
      row.cause = "stage";
      row.launches = stage.threads[t].batches;
      host.streams.push_back(std::move(row));
    }
    return host;
  }

  void print_streams() const {
    std::fputs(
        (options_.role + ": busy time a stream\n" + Monitor::stream_table(activity_, seconds_)).c_str(),
        stdout);
    std::fflush(stdout);
  }

  std::string trace_file() const { return with_role(job_.metrics().trace_file(), options_.role); }

  void write_trace() const {
    if (!runtime_.trace()) return;
    const std::string file = trace_file();
    std::ofstream out(file);
    runtime_.trace()->write(out, options_.role);
    if (!out.flush()) throw InvalidArgument("metrics.trace_file: cannot write '" + file + "'");
    log_info("trace: {}", file);
  }

  /// What the streams did until a step failed; the step's error is the one that goes on.
  void trace_failure() const {
    try {
      write_trace();
    } catch (const Error& e) {
      log_warning("{}", e.message());
    }
  }

  std::map<std::string, double> metrics() const {
    std::map<std::string, double> values{{"loss", loss_}};
    if (evaluated_ != done_) return values;  // of these variables, not of earlier ones
    values[metric_name()] = quality_->value;
    for (const auto& [task, value] : quality_->tasks) values[metric_name() + ("/" + task)] = value;
    return values;
  }

  const char* metric_name() const { return model_.metric == ModelMetric::Accuracy ? "accuracy" : "auc"; }

  WaitContext start_wait() const {
    return WaitContext::with_timeout(to_ns(job_.strategy().start_deadline_seconds()));
  }

  /// Before the first step, where a request to stop need not wait.
  WaitContext first_wait() const {
    return WaitContext::with_timeout(to_ns(job_.strategy().start_deadline_seconds()), stop_.token());
  }

  /// Of a step. Alone there is no peer to wait for, only work; with peers, the ops that wait for them have
  /// the deadline of the job, and name who is missing, so this one lies a little behind.
  std::chrono::nanoseconds step_time() const {
    if (peers_.world == 1 && !peers_.servers) return std::chrono::hours(1);
    return to_ns(job_.strategy().deadline_seconds() + 2.0);
  }
  WaitContext step_wait() const {
    if (peers_.world == 1 && !peers_.servers) return WaitContext::with_timeout(step_time());
    return WaitContext::with_timeout(step_time(), grace_.token());
  }

  /// How long peers may keep a step waiting.
  WaitContext peer_wait() const {
    return peers_.world == 1 ? step_wait() : step_wait().at_most(to_ns(job_.strategy().deadline_seconds()));
  }

  // Set once.
  const proto::Job& job_;
  const TrainOptions& options_;
  const Peers& peers_;
  const std::uint64_t seed_;  // of the steps' random ops
  const StageSession stages_ = stage_session(job_);
  Runtime& runtime_;
  Monitor& monitor_;
  const StopFlag& stop_;
  StopGrace grace_;

  StepLog step_log_;
  JobData data_;
  ModelGraph model_;
  std::unique_ptr<Batcher> batcher_;
  std::unique_ptr<InputStaging> input_;
  std::unique_ptr<Strategy> strategy_;
  TrainingGraph training_;
  int steps_in_flight_ = 1;
  std::uint64_t plan_hash_ = 0;
  std::unique_ptr<Evaluator> evaluator_;
  std::unique_ptr<Checkpointer> checkpointer_;
  std::unique_ptr<Stage> stage_;
  std::unique_ptr<StageMetrics> stage_metrics_;
  std::unique_ptr<Instance> instance_;  // before stage_ goes: steps in flight hold batches

  std::uint64_t total_ = 0, first_ = 0;
  std::uint64_t next_ = 0;                // to be started
  std::uint64_t done_ = 0;                // finished
  std::uint64_t saved_ = UINT64_MAX;      // the step of the last checkpoint
  std::uint64_t evaluated_ = UINT64_MAX;  // and of the last evaluation
  Clock::time_point saved_at_;
  std::deque<std::string> cursors_;  // of the steps in flight
  std::string cursor_;               // of the last finished step
  float loss_ = 0;
  bool stopping_ = false;
  std::optional<Quality> quality_;
  Clock::time_point begin_;
  double seconds_ = 0, input_wait_ = 0;
  HostActivity activity_;  // at the end of the loop
};

}  // namespace

bool ended_a_wait(const Error& error) {
  return error.code() == ErrorCode::Cancelled || error.code() == ErrorCode::Unavailable ||
         error.code() == ErrorCode::DeadlineExceeded;
}

TrainResult stopped_before_steps(const proto::Job& job, const Error& error) {
  log_info("asked to stop before the first step, with nothing to save: {}", error.message());
  TrainResult result;
  result.job = job.name();
  result.exit = kExitTerminated;
  return result;
}

TrainResult train(const proto::Job& job, const TrainOptions& options, const Peers& peers, Runtime& runtime,
                  Monitor& monitor, const StopFlag& stop) {
  return Run(job, options, peers, runtime, monitor, stop).run();
}

}  // namespace braid::worker
