// A run as MLPerf Training logs it (metrics.mllog): lines ":::MLLOG {...}" that its checker reads
// (mlperf_logging.compliance_checker). The leader writes: who runs what and the hyper-parameters, init_start
// to init_stop, run_start, blocks of steps with an evaluation behind each, and run_stop when the metric has
// come to evaluation.target, or the last step is made. Epochs are steps times rows of a step over the
// training rows. A resumed run adds to the file, without another start. A file that cannot be written any
// more ends with a warning. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "worker/metrics/metrics.h"
#include "worker/run/context.h"

namespace braid::worker {

/// The benchmark's name of a model: "dlrm_dcnv2" of dlrm_v2; others keep theirs.
std::string mllog_benchmark(const std::string& model);

class MlLog {
 public:
  /// Initialization begins. Throws: InvalidArgument when the file cannot be made.
  explicit MlLog(const RunContext& run);

  /// Steps [first, total) begin, of a job on so many training rows.
  void begin(std::uint64_t first, std::uint64_t total, std::int64_t train_rows);
  /// The steps before this one are made, and an evaluation begins.
  void evaluating(std::uint64_t step);
  /// It has ended. Once for each step.
  void evaluated(std::uint64_t step, const Metric& metric, const MetricValues& measured);
  /// No step follows. `interrupted`: the run is to be resumed, and has not ended.
  void end(std::uint64_t step, bool interrupted);

 private:
  void read_beginning();  // of the file that a resumed run goes on with
  void hyper_parameters(std::uint64_t total, std::int64_t train_rows);
  double epoch(std::uint64_t step) const;
  void open_block(std::uint64_t step);
  void close_block();
  void stop(std::uint64_t step, std::string_view status);
  /// `value` and `metadata` are JSON.
  void write(std::string_view type, std::string_view key, const std::string& value,
             const std::string& metadata = {});
  void point(std::string_view key, const std::string& value, const std::string& metadata = {}) {
    write("POINT_IN_TIME", key, value, metadata);
  }

  const RunContext run_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;  // null: none
  bool continued_ = false;                                // the file has run_start
  std::uint64_t total_ = 0;
  std::int64_t train_rows_ = 0;
  std::optional<std::uint64_t> block_;  // its first step; none is open
  std::optional<std::uint64_t> evaluating_, evaluated_;
  bool told_rows_ = false, stopped_ = false;
};

}  // namespace braid::worker
