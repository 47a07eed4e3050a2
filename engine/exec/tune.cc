#include "engine/exec/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/compile/compile.h"
#include "engine/exec/instance.h"
#include "engine/exec/plan_report.h"
#include "engine/exec/stubbed_peers.h"
#include "engine/exec/trace.h"
#include "engine/ops/state/variable_init.h"
#include "engine/program/program.h"
#include "engine/program/stream_rules.h"
#include "engine/schedule/stream_policy.h"

namespace braid {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWarmUpSteps = 2, kCostSteps = 7;
constexpr int kFewestTurns = 5, kMostTurns = 41;
constexpr double kBurstUs = 4000;  // of steps at a time, where steps are short
constexpr int kLongestBurst = 32;
constexpr std::chrono::seconds kDeadline{120};
/// Some hundred steps are run in all: longer ones than this, or than a share of the budget, are not worth it.
constexpr double kSlowStepUs = 200'000, kSlowShare = 0.2;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double us_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

std::vector<Tensor> zero_feeds(const Program& program) {
  std::vector<Tensor> feeds;
  for (const ProgramFeed& feed : program.feeds) feeds.push_back(Tensor::zeros(feed.dtype, feed.shape));
  return feeds;
}

/// The learning rate is 0: values stay what they were, and finite.
StepRequest scratch_step(std::uint64_t step, const std::vector<Tensor>& feeds) {
  StepRequest request;
  request.params.step = step;
  request.feeds = feeds;
  return request;
}

struct Candidate {
  StreamPolicy policy;
  int streams;
  bool without_ids;
  std::shared_ptr<const Program> program;
  std::unique_ptr<Instance> instance = nullptr;
  std::vector<double> us = {};  // a step, by turn
  std::string name() const {
    return streams == 1 ? std::string(stream_policy_name(policy))
                        : fmt::format("{} on {}{}", stream_policy_name(policy), streams,
                                      without_ids ? " without ids" : "");
  }
};

class Tuner {
 public:
  Tuner(const Graph& graph, const CompileRequest& request, const CompileOptions& options,
        std::vector<Tensor> feeds, Runtime& job, const TuneOptions& tune)
      : graph_(graph),
        request_(request),
        options_(options),
        feeds_(std::move(feeds)),
        job_(job),
        tune_(tune) {
    plan_.made_for = stream_plan_key(graph, request, options);
  }

  StreamPlan run() {
    const int count = options_.streams.count;
    candidates_.push_back(make(StreamPolicy::None, 1));
    if (count == 1) return decide(0, "there is one stream");
    const std::string reason = why_not_measured();
    if (!reason.empty()) return predict(reason);
    try {
      if (options_.domain == Domain::Host)
        if (const std::string slow = find_costs(); !slow.empty()) return predict(slow);
      add_candidates();
      if (candidates_.size() == 1)
        return decide(
            0, hopeless_ > 0
                   ? fmt::format("the others are predicted to take {:.1f} times as long or more", hopeless_)
                   : "no other policy gives another program");
      time_candidates();
    } catch (const Error& error) {
      return predict(std::string("the scratch steps failed: ") + error.what());
    }
    return choose();
  }

 private:
  bool has_rules() const { return options_.streams.rules && options_.streams.rules->size() > 0; }
  bool has_scopes() const {
    if (options_.streams.scopes != Scopes::Used) return false;
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (!graph_.node(id).removed && graph_.node(id).stream != kNoStream) return true;
    return false;
  }

  Candidate make(StreamPolicy policy, int streams, bool without_ids = false) const {
    CompileOptions options = options_;
    options.streams = plan_.apply(options_.streams);
    options.streams.policy = policy;
    options.streams.count = streams;
    if (without_ids) options.streams.scopes = Scopes::KeptApart;
    return {policy, streams, without_ids, compile(graph_, request_, options)};
  }

  std::string why_not_measured() const {
    std::uint64_t bytes = 0;
    const Program& program = *candidates_[0].program;
    for (const ProgramVariable& variable : program.variables)
      bytes += program.buffers[static_cast<std::size_t>(variable.buffer)].bytes;
    if (bytes > tune_.most_variable_bytes)
      return fmt::format("the variables take {} MiB, and a second copy may take {} MiB", bytes >> 20,
                         tune_.most_variable_bytes >> 20);
    return {};
  }

  StreamPlan decide(std::size_t chosen, const std::string& why) {
    plan_.policy = candidates_[chosen].policy;
    plan_.streams = candidates_[chosen].streams;
    plan_.without_ids = candidates_[chosen].without_ids;
    plan_.why = fmt::format("AUTO took {}: {}", candidates_[chosen].name(), why);
    if (chosen == 0) plan_.warnings = warnings_;
    return std::move(plan_);
  }

  /// By the model, as compile() does it.
  StreamPlan predict(std::string reason) {
    plan_.costs.clear();
    std::replace(reason.begin(), reason.end(), '\n', ' ');
    const auto program = make(StreamPolicy::Auto, options_.streams.count).program;
    candidates_.clear();
    candidates_.push_back(
        {program->policy, program->compute_streams, program->scopes == Scopes::KeptApart, program});
    return decide(0, fmt::format("predicted {:.1f} us, serial {:.1f} us; not measured: {}",
                                 program->stats.step_us, program->stats.serial_us, reason));
  }

  /// Binds a candidate to scratch memory, with the values that variables have at step 0.
  void bind(Candidate& candidate, Runtime& runtime) {
    if (feeds_.empty()) feeds_ = zero_feeds(*candidate.program);
    candidate.instance =
        std::make_unique<Instance>(stand_ins_.without_peers(*candidate.program, tune_.real), runtime);
  }

  void initialize(Runtime& runtime) const {
    for (const VariableInfo& variable : list_variables(graph_)) {
      std::optional<Tensor> value = runtime.variables().read(variable.name);
      if (!value) continue;
      initialize_variable(graph_.node(variable.handle), tune_.seed, *value);
      runtime.variables().write(variable.name, *value);
    }
  }

  std::unique_ptr<Runtime> make_runtime(bool trace) const {
    RuntimeOptions options;
    options.intra_op_threads = job_.pool().width();
    options.trace = trace;
    options.device = std::shared_ptr<Accelerator>(std::shared_ptr<void>(), job_.device());  // the job's
    options.device_graphs = job_.device_graphs();
    auto runtime = std::make_unique<Runtime>(options);
    runtime->services() = job_.services();
    return runtime;
  }

  double budget_us() const { return std::chrono::duration<double, std::micro>(tune_.budget).count(); }

  /// Why there are none, or an empty text.
  std::string find_costs() {
    const std::unique_ptr<Runtime> runtime = make_runtime(true);
    bind(candidates_[0], *runtime);
    initialize(*runtime);
    const double slow_us = std::max(kSlowStepUs, kSlowShare * budget_us());
    double us = std::numeric_limits<double>::infinity();
    for (std::uint64_t step = 0; step < kWarmUpSteps && us > slow_us; ++step) {
      const auto begin = Clock::now();
      candidates_[0].instance->run(scratch_step(step, feeds_), wait_);
      us = us_since(begin);
    }
    if (us > slow_us)
      return fmt::format("a step takes {:.1f} s, which is long for streams.measure_seconds {:g}", us / 1e6,
                         budget_us() / 1e6);
    plan_.costs = measure_costs(*candidates_[0].instance, *runtime, feeds_, tune_.real);
    candidates_[0].instance.reset();
    candidates_[0] = make(candidates_[0].policy, candidates_[0].streams);
    return {};
  }

  void add_candidates() {
    const bool scopes = has_scopes();
    if (scopes || has_rules()) add(StreamPolicy::User, options_.streams.count);
    add_policies(false);
    if (scopes) add_policies(true);
  }

  void add_policies(bool without_ids) {
    const int count = options_.streams.count;
    const bool small = candidates_[0].program->ops.size() <= static_cast<std::size_t>(kMostFullOps / 2);
    const auto add_on = [&](int streams) {
      add(StreamPolicy::Cost, streams, without_ids);
      if (small) add(StreamPolicy::Full, streams, without_ids);
    };
    // Ids that the user has written need all streams.
    const bool ids = has_rules() || (has_scopes() && !without_ids);
    for (int streams = 2; streams < count && !ids; streams *= 2) add_on(streams);
    add_on(count);
    add(StreamPolicy::Embedding, count, without_ids);
  }

  /// One that does the same as another is left out, and so is one that the model holds for hopeless.
  void add(StreamPolicy policy, int streams, bool without_ids = false) {
    Candidate candidate = make(policy, streams, without_ids);
    for (const Note& note : candidate.program->notes)
      if (note.severity == Severity::Warning && note.pass == "streams" && policy == StreamPolicy::User)
        warnings_.push_back(note.text);
    constexpr double kHopeless = 1.25;
    const double ratio = candidate.program->stats.step_us / candidate.program->stats.serial_us;
    if (ratio > kHopeless) {
      hopeless_ = hopeless_ > 0 ? std::min(hopeless_, ratio) : ratio;
      return;
    }
    const auto used = [](const Program& program) {
      std::vector<int> of_ops;
      for (const ProgramOp& op : program.ops) of_ops.push_back(op.stream);
      return of_ops;
    };
    for (const Candidate& other : candidates_)
      if (used(*other.program) == used(*candidate.program)) return;
    candidates_.push_back(std::move(candidate));
  }

  void time_candidates() {
    const std::unique_ptr<Runtime> runtime = make_runtime(false);
    for (Candidate& candidate : candidates_) bind(candidate, *runtime);
    initialize(*runtime);
    double longest_us = 0, turn_us = 0;
    for (Candidate& candidate : candidates_) {
      burst(candidate, kWarmUpSteps);
      const double us = burst(candidate, options_.steps_in_flight + 1);
      longest_us = std::max(longest_us, us);
      turn_us += us;
    }
    const int least = 2 * options_.steps_in_flight;
    const int steps = std::clamp(static_cast<int>(kBurstUs / longest_us), least, kLongestBurst);
    turns_ = std::clamp(static_cast<int>(budget_us() / (turn_us * steps)), kFewestTurns, kMostTurns);
    for (int turn = 0; turn < turns_; ++turn)
      for (std::size_t i = 0; i < candidates_.size(); ++i) {
        Candidate& candidate = candidates_[(i + static_cast<std::size_t>(turn)) % candidates_.size()];
        candidate.us.push_back(burst(candidate, steps));
      }
    for (Candidate& candidate : candidates_) candidate.instance.reset();
  }

  /// Microseconds a step.
  double burst(Candidate& candidate, int steps) {
    Instance& instance = *candidate.instance;
    const auto begin = Clock::now();
    for (int i = 0; i < steps; ++i) {
      instance.start(scratch_step(step_++, feeds_), wait_);
      if (instance.in_flight() >= options_.steps_in_flight) instance.finish(wait_);
    }
    while (instance.in_flight() > 0) instance.finish(wait_);
    return us_since(begin) / steps;
  }

  StreamPlan choose() {
    const std::vector<double>& serial = candidates_[0].us;
    std::vector<double> medians;
    std::vector<std::uint64_t> arenas;
    std::string times;
    for (std::size_t c = 0; c < candidates_.size(); ++c) {
      std::vector<double> ratios;
      for (std::size_t turn = 0; turn < serial.size(); ++turn)
        ratios.push_back(candidates_[c].us[turn] / serial[turn]);
      const double ratio = median(std::move(ratios));
      medians.push_back(ratio);
      const ProgramStats& stats = candidates_[c].program->stats;
      arenas.push_back(stats.arena_bytes + stats.device_arena_bytes);
      times += fmt::format("{}{} {:.1f} us", c ? ", " : "", candidates_[c].name(), median(candidates_[c].us));
      if (c > 0) times += fmt::format(" ({:.3f})", ratio);
    }
    return decide(
        keep_ids(choose_plan(medians, arenas, tune_), medians, arenas),
        fmt::format("medians of a step in {} turns, and their ratio to the first: {}", turns_, times));
  }

  /// Ids that somebody has written are given up only for what is worthwhile.
  std::size_t keep_ids(std::size_t chosen, const std::vector<double>& ratios,
                       const std::vector<std::uint64_t>& arenas) const {
    if (!candidates_[chosen].without_ids) return chosen;
    std::vector<double> with_ids = ratios;
    for (std::size_t c = 0; c < candidates_.size(); ++c)
      if (candidates_[c].without_ids) with_ids[c] = std::numeric_limits<double>::infinity();
    const std::size_t kept = choose_plan(with_ids, arenas, tune_);
    return ratios[chosen] < ratios[kept] * (1 - tune_.worthwhile_gain) ? chosen : kept;
  }

  const Graph& graph_;
  const CompileRequest& request_;
  const CompileOptions& options_;
  std::vector<Tensor> feeds_;
  Runtime& job_;
  const TuneOptions& tune_;
  const WaitContext wait_ = WaitContext::with_timeout(kDeadline);
  StreamPlan plan_;
  LaneStandIns stand_ins_;             // before the instances of its programs
  std::vector<Candidate> candidates_;  // the serial one first
  std::uint64_t step_ = 0;
  int turns_ = 0;
  double hopeless_ = 0;  // the least ratio to the serial one among those that are not timed; 0: none
  std::vector<std::string> warnings_;  // about ids and rules, which the serial one does not look at
};

}  // namespace

std::size_t choose_plan(const std::vector<double>& ratios, const std::vector<std::uint64_t>& arenas,
                        const TuneOptions& tune) {
  const auto fastest =
      static_cast<std::size_t>(std::min_element(ratios.begin(), ratios.end()) - ratios.begin());
  if (ratios[fastest] >= 1 - tune.worthwhile_gain) return 0;
  const double slowest = std::min(ratios[fastest] * (1 + tune.as_fast), 1 - tune.worthwhile_gain);
  std::size_t chosen = fastest;
  for (std::size_t c = 1; c < ratios.size(); ++c) {
    const bool smaller =
        static_cast<double>(arenas[c]) <= tune.smaller * static_cast<double>(arenas[fastest]);
    if (ratios[c] <= slowest && smaller && arenas[c] < arenas[chosen]) chosen = c;
  }
  return chosen;
}

MeasuredCosts measure_costs(Instance& instance, Runtime& runtime, const std::vector<Tensor>& feeds,
                            const std::vector<Lane>& real) {
  const WaitContext wait = WaitContext::with_timeout(kDeadline);
  for (std::uint64_t step = 0; step < kWarmUpSteps + kCostSteps; ++step)
    instance.run(scratch_step(step, feeds), wait);
  std::map<std::string, std::vector<double>> samples;
  for (const ProgramStream& stream : instance.program().streams) {
    const bool is_real = std::ranges::find(real, stream.lane) != real.end();
    for (const TraceSlice& slice : runtime.trace()->track(stream.name).slices()) {
      const bool counts =
          slice.kind == TraceSlice::Kind::Work || (slice.kind == TraceSlice::Kind::Async && is_real);
      if (counts && slice.step >= kWarmUpSteps)
        samples[slice.name].push_back(
            std::chrono::duration<double, std::micro>(slice.end - slice.begin).count());
    }
  }
  MeasuredCosts costs;
  for (auto& [name, us] : samples) costs[name] = std::round(1e3 * median(std::move(us))) / 1e3;
  return costs;
}

StreamPlan tune_streams(const Graph& graph, const CompileRequest& request, const CompileOptions& options,
                        std::vector<Tensor> feeds, Runtime& job, const TuneOptions& tune) {
  return Tuner(graph, request, options, std::move(feeds), job, tune).run();
}

}  // namespace braid
