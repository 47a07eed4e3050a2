// A run's event files for TensorBoard (base/formats/event_file.h): loss, learning rate, speed, metrics of
// evaluations, histograms of variables, the plan as a graph whose devices are streams, and hyper-parameters.
// metrics.tensorboard_dir names the directory, or the variable BRAID_TENSORBOARD; the leader writes, all
// others where it contains "%r", which becomes the role. A file that cannot be written any more ends with a
// warning. Thread rule: one thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "base/formats/event_file.h"
#include "worker/metrics/metrics.h"
#include "worker/run/context.h"

namespace braid {
class Program;
class VariableStore;
}  // namespace braid

namespace braid::worker {

class EventLog {
 public:
  /// Throws: InvalidArgument when the directory cannot be written: at the end would be late to learn of it.
  explicit EventLog(const RunContext& run);

  void begin(const Program& program);
  /// Not every one of many steps a second.
  void step(std::uint64_t step, double loss, double learning_rate, double examples_per_second);
  /// `variables`: no step is in flight.
  void evaluated(std::uint64_t step, const MetricValues& measured, const VariableStore& variables);
  void finish();

 private:
  void write(const std::function<void(EventFile&)>& add);

  const RunContext run_;
  const char* field_ = "";           // that names the directory
  std::unique_ptr<EventFile> file_;  // null: none
  std::chrono::steady_clock::time_point next_;
  std::uint64_t last_step_ = 0;
  double last_loss_ = 0;
  bool unwritten_ = false;  // of the last step
};

}  // namespace braid::worker
