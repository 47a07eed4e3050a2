// Training from Python: a whole run (worker/run/trainer.h) on a thread of its own, while the calling thread
// looks after signals and callbacks; single steps; forward passes.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "base/error.h"
#include "launch/cluster_spec.h"
#include "launch/environment.h"
#include "proto/job.pb.h"
#include "python/src/arrays.h"
#include "python/src/bind.h"
#include "python/src/rows.h"
#include "worker/evaluation/model_runner.h"
#include "worker/job/job.h"
#include "worker/metrics/metrics_json.h"
#include "worker/process/stop_signal.h"
#include "worker/roles/roles.h"
#include "worker/run/fed_steps.h"

namespace nb = nanobind;

namespace braid::python {
namespace {

using Values = std::map<std::string, Tensor>;

Values to_values(const nb::dict& values) {
  Values result;
  for (const auto& [name, value] : values) {
    const auto key = nb::cast<std::string>(name);
    result.emplace(key, to_tensor(value, "variable '" + key + "'"));
  }
  return result;
}

nb::dict from_values(const Values& values) {
  nb::dict result;
  for (const auto& [name, value] : values) result[name.c_str()] = to_array(value);
  return result;
}

/// Functions that the run's thread wants called, by the thread that called Python's fit(): one at a time.
class Calls {
 public:
  /// Of the run's thread: returns when it was called.
  void post(std::function<void()> call) {
    std::unique_lock lock(mu_);
    call_ = std::move(call);
    changed_.notify_all();
    changed_.wait(lock, [&] { return !call_; });
  }
  void end() {
    std::lock_guard lock(mu_);
    ended_ = true;
    changed_.notify_all();
  }
  /// Of the calling thread, with the interpreter's lock: serves until end(), and asks `stop` once when Python
  /// has raised anything. The first exception that was raised, or None.
  nb::object serve(worker::StopFlag& stop) {
    nb::object raised = nb::none();
    const auto guarded = [&](const auto& call) {
      try {
        call();
      } catch (nb::python_error& error) {
        if (raised.is_none()) raised = nb::borrow(error.value());
        stop.request();
      }
    };
    while (true) {
      std::function<void()> call;
      {
        const nb::gil_scoped_release released;
        std::unique_lock lock(mu_);
        changed_.wait_for(lock, std::chrono::milliseconds(100), [&] { return call_ || ended_; });
        if (ended_) break;
        call = call_;
      }
      if (call) {
        guarded(call);
        std::lock_guard lock(mu_);
        call_ = nullptr;
        changed_.notify_all();
      }
      guarded([] {
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
      });
    }
    return raised;
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  // Guarded by mu_.
  std::function<void()> call_;
  bool ended_ = false;
};

struct Outcome {
  int exit = 0;
  std::string result;  // JSON; empty of a server
  Values values;
  std::vector<std::pair<std::uint64_t, float>> losses;
};

struct Rates {  // RunHooks::rate_factors
  std::vector<double> factors;
  std::uint64_t every = 1;
};

using GivenRates = std::optional<std::pair<std::vector<double>, std::uint64_t>>;

Rates to_rates(GivenRates given) { return given ? Rates{std::move(given->first), given->second} : Rates{}; }

struct Asked {
  std::string job, data_dir, start;
  std::optional<Rows> train, test;
  Rates rates;
  Values initial;
  std::uint64_t first_step = 0;
  std::uint64_t every = 0;  // steps between calls of on_step; 0: none
  nb::object on_step, on_border, on_evaluate;
};

/// A callback that returns True asks the run to end in order.
worker::RunHooks hooks_of(const Asked& asked, Calls& calls, Outcome& outcome, worker::StopFlag& stop) {
  const auto heed = [&stop](const nb::object& answer) {
    if (answer.is(nb::handle(Py_True))) stop.request();
  };
  worker::RunHooks hooks;
  if (asked.train) hooks.train = asked.train->table;
  if (asked.test) hooks.test = asked.test->table;
  hooks.initial = asked.initial;
  hooks.first_step = asked.first_step;
  hooks.rate_factors = asked.rates.factors;
  hooks.factor_every = asked.rates.every;
  hooks.step = [&, heed](const worker::StepOutcome& step) {
    outcome.losses.emplace_back(step.step, step.loss);
    if (asked.every > 0 && (step.step + 1) % asked.every == 0)
      calls.post([&] { heed(asked.on_step(step.step, step.loss, step.seconds)); });
  };
  if (!asked.on_border.is_none())
    hooks.border = [&, heed](std::uint64_t done) { calls.post([&] { heed(asked.on_border(done)); }); };
  if (!asked.on_evaluate.is_none())
    hooks.evaluated = [&, heed](std::uint64_t done, const worker::MetricValues& values) {
      calls.post([&] { heed(asked.on_evaluate(done, worker::metrics_json(values))); });
    };
  hooks.ended = [&](const worker::TrainResult& result, const VariableStore& store) {
    outcome.result = result.to_json();
    outcome.values = worker::copy_values(store);
  };
  return hooks;
}

nb::tuple train(const std::string& job_text, const std::string& data_dir, const std::string& start,
                std::optional<Rows> rows, std::optional<Rows> test, const nb::dict& initial,
                std::uint64_t first_step, std::uint64_t every, nb::object on_step, nb::object on_border,
                nb::object on_evaluate, GivenRates rates) {
  refuse_forked_child();
  const Asked asked{
      job_text,           data_dir,   start, std::move(rows), std::move(test), to_rates(std::move(rates)),
      to_values(initial), first_step, every, on_step,         on_border,       on_evaluate};
  const proto::Job job = job_of(asked.job);
  Calls calls;
  Outcome outcome;
  ErrorPtr error;
  const auto stop = std::make_shared<worker::StopFlag>();
  const worker::RunHooks hooks = hooks_of(asked, calls, outcome, *stop);
  std::thread run([&] {
    try {
      worker::RoleOptions role;
      role.cluster = launch::resolve_cluster(launch::process_environment(), {});
      role.data_dir = asked.data_dir;
      role.accepts_changes = asked.start == "resume changed";
      role.start = asked.start == "resume" || role.accepts_changes ? RunStart::Resume
                   : asked.start == "overwrite"                    ? RunStart::Overwrite
                                                                   : RunStart::New;
      role.hooks = &hooks;
      outcome.exit = worker::run_role(job, role, stop);
    } catch (...) {
      error = capture_current_exception();
    }
    calls.end();
  });
  const auto join = [&] {
    const nb::gil_scoped_release released;
    run.join();
  };
  nb::object raised;
  try {
    raised = calls.serve(*stop);
  } catch (...) {
    join();
    throw;
  }
  join();
  if (error && raised.is_none()) throw_error(*error);
  return nb::make_tuple(outcome.exit, outcome.result, from_values(outcome.values), outcome.losses, raised);
}

// ----------------------------------------------------------------------------------- single steps

class Steps {
 public:
  Steps(const std::string& job, const Rows& shapes, const nb::dict& initial, std::uint64_t first_step,
        GivenRates rates) {
    refuse_forked_child();
    worker::RunHooks hooks;
    Rates of_steps = to_rates(std::move(rates));
    hooks.rate_factors = std::move(of_steps.factors);
    hooks.factor_every = of_steps.every;
    hooks.train = shapes.table;
    hooks.initial = to_values(initial);
    hooks.first_step = first_step;
    const nb::gil_scoped_release released;
    steps_ = std::make_unique<worker::FedSteps>(job_of(job), std::move(hooks));
  }
  ~Steps() { end_without_lock(steps_); }
  nb::tuple step(const nb::list& batch) {
    refuse_forked_child();
    release_dropped();
    std::vector<Tensor> tensors;
    tensors.reserve(batch.size());
    for (nb::handle each : batch) tensors.push_back(to_tensor(each, "a batch"));
    worker::StepOutcome outcome;
    {
      const nb::gil_scoped_release released;
      outcome = steps_->step(std::move(tensors));
    }
    return nb::make_tuple(outcome.loss, outcome.step, outcome.seconds);
  }
  nb::list feeds() const {
    nb::list result;
    for (const auto& feed : steps_->feeds())
      result.append(nb::make_tuple(feed.name, static_cast<int>(feed.dtype), from_shape(feed.shape)));
    return result;
  }
  std::uint64_t done() const { return steps_->done(); }
  nb::dict values() const { return from_values(steps_->values()); }

 private:
  std::unique_ptr<worker::FedSteps> steps_;
};

// --------------------------------------------------------------------------------- forward passes

class Runner {
 public:
  Runner(const std::string& job, const Rows& shapes) {
    refuse_forked_child();
    const nb::gil_scoped_release released;
    runner_ = std::make_unique<worker::ModelRunner>(job_of(job), shapes.table);
  }
  ~Runner() { end_without_lock(runner_); }
  void set_values(const nb::dict& values) { runner_->set_values(to_values(values)); }
  nb::dict values() const { return from_values(runner_->values()); }
  std::vector<std::string> outputs() const { return runner_->outputs(); }
  std::string evaluate(const Rows& rows) {
    refuse_forked_child();
    const nb::gil_scoped_release released;
    return worker::metrics_json(runner_->evaluate(rows.table));
  }
  nb::list predict(const Rows& rows, const std::vector<std::string>& outputs) {
    refuse_forked_child();
    std::vector<Tensor> values;
    {
      const nb::gil_scoped_release released;
      values = runner_->predict(rows.table, outputs);
    }
    nb::list result;
    for (const Tensor& value : values) result.append(to_array(value));
    return result;
  }

 private:
  std::unique_ptr<worker::ModelRunner> runner_;
};

}  // namespace

void bind_training(nb::module_& module) {
  module.def("train", train, nb::arg("job"), nb::arg("data_dir"), nb::arg("start"), nb::arg("rows").none(),
             nb::arg("test").none(), nb::arg("initial"), nb::arg("first_step"), nb::arg("every"),
             nb::arg("on_step").none(), nb::arg("on_border").none(), nb::arg("on_evaluate").none(),
             nb::arg("rates").none());
  module.def(
      "job_text",
      [](const std::string& text, const std::vector<std::string>& overrides) {
        return worker::load_job_text(text, "job", overrides, {}).DebugString();
      },
      nb::arg("text"), nb::arg("overrides"),
      "The job with its defaults and overrides (a.b=value), as `braid train --print-job` prints it.");
  module.def(
      "overridden",
      [](const std::string& text, const std::vector<std::string>& overrides) {
        proto::Job job = worker::parse_job(text, "job");
        for (const std::string& assignment : overrides) worker::set_job_field(job, assignment);
        return job.DebugString();
      },
      nb::arg("text"), nb::arg("overrides"), "The job with overrides (a.b=value), without defaults.");
  nb::class_<Steps>(module, "Steps")
      .def(nb::init<const std::string&, const Rows&, const nb::dict&, std::uint64_t, GivenRates>(),
           nb::arg("job"), nb::arg("shapes"), nb::arg("initial"), nb::arg("first_step"),
           nb::arg("rates").none())
      .def("step", &Steps::step, nb::arg("batch"))
      .def("feeds", &Steps::feeds)
      .def("done", &Steps::done)
      .def("values", &Steps::values);
  nb::class_<Runner>(module, "Runner")
      .def(nb::init<const std::string&, const Rows&>(), nb::arg("job"), nb::arg("shapes"))
      .def("set_values", &Runner::set_values, nb::arg("values"))
      .def("values", &Runner::values)
      .def("outputs", &Runner::outputs)
      .def("evaluate", &Runner::evaluate, nb::arg("rows"))
      .def("predict", &Runner::predict, nb::arg("rows"), nb::arg("outputs"));
}

}  // namespace braid::python
