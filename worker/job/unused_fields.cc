#include "worker/job/unused_fields.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <string_view>

#include "proto/job.pb.h"

namespace braid::worker {
namespace {

namespace pb = google::protobuf;

/// Whether a field is there, or is not what it is when it is absent: "staging.capacity".
bool is_set(const pb::Message& message, std::string_view path) {
  const std::size_t dot = path.find('.');
  const auto* field = message.GetDescriptor()->FindFieldByName(std::string(path.substr(0, dot)));
  const pb::Reflection& reflection = *message.GetReflection();
  if (field->is_repeated()) return reflection.FieldSize(message, field) > 0;
  if (!reflection.HasField(message, field)) return false;
  return dot == std::string_view::npos || is_set(reflection.GetMessage(message, field), path.substr(dot + 1));
}

class Finder {
 public:
  explicit Finder(const proto::Job& job) : job_(job) {}

  /// Of one message of the job.
  void idle(bool is_idle, const std::string& why, std::string_view message,
            std::initializer_list<const char*> fields) {
    for (const char* field : fields) {
      const std::string path = fmt::format("{}.{}", message, field);
      if (is_idle && is_set(job_, path)) found_.push_back(path + " has no effect: " + why);
    }
  }
  void idle_in_column(bool is_idle, const std::string& why, const proto::Column& column,
                      std::initializer_list<const char*> fields) {
    for (const char* field : fields)
      if (is_idle && is_set(column, field))
        found_.push_back(fmt::format("{} of column '{}' has no effect: {}", field, column.name(), why));
  }
  std::vector<std::string> take() { return std::move(found_); }

 private:
  const proto::Job& job_;
  std::vector<std::string> found_;
};

bool has_columns(proto::Input::Format format) {
  return format == proto::Input::CSV || format == proto::Input::TFRECORD || format == proto::Input::TEXT ||
         format == proto::Input::GENERATOR;
}

void find_in_column(const proto::Column& column, bool generated, Finder& find) {
  const auto kind = column.kind();
  const std::string its = "its kind is " + proto::Column::Kind_Name(kind);
  const bool is_number = kind == proto::Column::NUMERIC || kind == proto::Column::LABEL;
  const bool is_list = column.length() > 1;
  if (kind == proto::Column::SKIP) {
    find.idle_in_column(true, its, column,
                        {"buckets", "positive", "shift", "scale", "log1p", "missing", "vocabulary",
                         "vocabulary_file", "length", "list_separator", "output", "missing_word"});
    return;
  }
  // A generator takes the number of classes from it.
  find.idle_in_column(kind != proto::Column::CATEGORICAL && !(kind == proto::Column::CLASS && generated), its,
                      column, {"buckets"});
  find.idle_in_column(kind != proto::Column::LABEL, its, column, {"positive"});
  find.idle_in_column(kind != proto::Column::NUMERIC, its, column, {"shift", "scale", "log1p"});
  find.idle_in_column(!is_number || (kind == proto::Column::LABEL && !is_list), its, column, {"missing"});
  find.idle_in_column(!is_list, "its length is 1", column, {"list_separator"});
}

void find_in_input(const proto::Input& input, Finder& find) {
  const auto format = input.format();
  const std::string its = "input.format is " + proto::Input::Format_Name(format);
  const bool reads_files = format != proto::Input::SYNTHETIC && format != proto::Input::GENERATOR;
  find.idle(!reads_files, its, "input", {"train_files", "test_files", "max_bad_records"});
  find.idle(format == proto::Input::IDX, its, "input", {"max_bad_records"});
  find.idle(!has_columns(format), its, "input", {"columns"});
  find.idle(!has_columns(format), its, "input.csv", {"columns"});
  find.idle(format != proto::Input::CSV, its, "input.csv", {"separator", "header", "comment"});
  find.idle(has_columns(format) && !input.columns().empty(), "input.columns is set", "input.csv",
            {"columns"});
  if (has_columns(format))
    for (const proto::Column& column : input.columns().empty() ? input.csv().columns() : input.columns())
      find_in_column(column, format == proto::Input::GENERATOR, find);
  find.idle(format != proto::Input::GENERATOR, its, "input", {"generator"});
  find.idle(format != proto::Input::CRITEO, its, "input", {"criteo"});
  find.idle(input.no_shuffle(), "input.no_shuffle is set", "input", {"shuffle_buffer"});
}

void find_in_staging(const proto::Staging& staging, Finder& find) {
  // The part of the model that is cut off runs inside the step then, with the same threads and limits.
  const bool nothing_runs = staging.disabled() && !staging.auto_stage();
  const std::string disabled = "staging.disabled is set";
  find.idle(staging.disabled(), disabled, "staging", {"capacity", "num_threads", "on_timeout"});
  find.idle(nothing_runs, disabled, "staging",
            {"timeout_millis", "use_stage_subgraph_thread_pool", "session_stage_subgraph_thread_pool"});
  find.idle(!nothing_runs && !staging.use_stage_subgraph_thread_pool(),
            "staging.use_stage_subgraph_thread_pool is not set", "staging",
            {"session_stage_subgraph_thread_pool"});
  const bool stays_on_host = staging.stage_subgraph_stream_id() == 0;
  find.idle(stays_on_host, "staging.stage_subgraph_stream_id is 0: the stage computes on the host", "staging",
            {"stage_multi_stream"});
  find.idle(!stays_on_host && !staging.auto_stage(), "staging.auto_stage is not set: the stage only reads",
            "staging", {"stage_multi_stream", "stage_subgraph_stream_id"});
}

void find_in_streams(const proto::Streams& streams, Finder& find) {
  const bool one = streams.count() <= 1;
  const auto policy = streams.policy();
  const bool none = policy == proto::Streams::NONE || (one && policy == proto::Streams::AUTO);
  const std::string only_one = "there is one compute stream (streams.count)";
  find.idle(one && policy != proto::Streams::NONE && policy != proto::Streams::USER, only_one, "streams",
            {"policy"});
  const std::string why = policy == proto::Streams::NONE ? "streams.policy is NONE" : only_one;
  find.idle(none, why, "streams", {"rules_file"});
  find.idle(none || one, why, "streams", {"forward_propagation", "no_memory_waits"});
  const bool measures = !one && policy == proto::Streams::AUTO;
  find.idle(!measures, one ? only_one : "only streams.policy AUTO measures", "streams",
            {"no_measuring", "measure_seconds"});
  find.idle(measures && streams.no_measuring(), "streams.no_measuring is set", "streams",
            {"measure_seconds"});
}

void find_in_strategy(const proto::Strategy& strategy, Finder& find) {
  const auto kind = strategy.kind();
  const std::string its = "strategy.kind is " + proto::Strategy::Kind_Name(kind);
  find.idle(kind != proto::Strategy::PS, its, "strategy", {"consistency"});
  find.idle(kind != proto::Strategy::ALLREDUCE, its, "strategy", {"backend"});
  find.idle(kind == proto::Strategy::LOCAL, its, "strategy", {"bucket_bytes", "deadline_seconds", "tls"});
  find.idle(kind == proto::Strategy::ALLREDUCE && strategy.backend() == proto::Strategy::MPI,
            "strategy.backend MPI has connections of its own", "strategy", {"tls"});
}

void find_in_updates(const proto::Job& job, Finder& find) {
  const auto optimizer = job.optimizer().kind();
  const std::string its = "optimizer.kind is " + proto::Optimizer::Kind_Name(optimizer);
  find.idle(optimizer != proto::Optimizer::MOMENTUM, its, "optimizer", {"momentum", "nesterov"});
  find.idle(optimizer != proto::Optimizer::ADAM, its, "optimizer", {"beta1", "beta2", "epsilon"});
  find.idle(optimizer != proto::Optimizer::ADAGRAD, its, "optimizer", {"initial_accumulator"});
  const auto schedule = job.schedule().kind();
  const std::string kind = "schedule.kind is " + proto::Schedule::Kind_Name(schedule);
  const bool decays = schedule == proto::Schedule::LINEAR_DECAY || schedule == proto::Schedule::COSINE_DECAY;
  find.idle(!decays, kind, "schedule", {"end_factor"});
  find.idle(schedule != proto::Schedule::STEP_DECAY, kind, "schedule", {"factor", "every"});
}

/// What a model has no part for (models).
void find_in_model(const std::string& model, Finder& find) {
  constexpr std::string_view kImages[] = {"cnn", "mlp", "resnet18"};
  const bool is_plain = model == "linear_regression";
  const bool is_of_images = std::find(std::begin(kImages), std::end(kImages), model) != std::end(kImages);
  const std::string its = "model '" + model + "' has no ";
  find.idle(is_plain, its + "hidden layers", "model", {"hidden"});
  find.idle(is_plain || is_of_images, its + "embeddings", "model",
            {"embedding_dim", "hash_buckets", "sparse_tables", "embedding_init"});
  find.idle(!is_of_images && model != "transformer", its + "classes", "model", {"classes"});
  find.idle(model != "mmoe", its + "experts and tasks", "model", {"experts", "tasks"});
}

void find_in_results(const proto::Job& job, Finder& find) {
  const auto format = job.input().format();
  const bool has_test = format == proto::Input::SYNTHETIC || !job.input().test_files().empty() ||
                        job.input().generator().test_rows() > 0;
  find.idle(job.evaluation().disabled(), "evaluation.disabled is set", "evaluation", {"every_steps"});
  find.idle(!has_test,
            format == proto::Input::GENERATOR ? "input.generator.test_rows is not set"
                                              : "input.test_files is not set",
            "evaluation", {"batch_size", "every_steps", "patience_seconds"});
  find.idle(job.checkpoint().directory().empty(), "checkpoint.directory is not set", "checkpoint",
            {"every_steps", "keep", "every_seconds", "keep_best"});
  find.idle(job.metrics().no_sampling(), "metrics.no_sampling is set", "metrics",
            {"sample_every_seconds", "sample_window_seconds"});
}

}  // namespace

std::vector<std::string> unused_fields(const proto::Job& job) {
  Finder find(job);
  if (!job.model().name().empty()) find_in_model(job.model().name(), find);
  find_in_input(job.input(), find);
  find_in_staging(job.staging(), find);
  find_in_streams(job.streams(), find);
  find_in_strategy(job.strategy(), find);
  find_in_updates(job, find);
  find_in_results(job, find);
  return find.take();
}

std::vector<std::string> unused_device_fields(const proto::Job& job, SettingsFor purpose) {
  Finder find(job);
  const bool on_host = job.runtime().device() != proto::Runtime::CUDA;
  const std::string why = "the device is the CPU";
  find.idle(on_host && purpose == SettingsFor::Training, why, "runtime", {"device_memory_limit"});
  find.idle(on_host, why, "runtime",
            {"device_memory_fraction", "device_memory_up_front", "visible_device_list", "no_tf32",
             "measure_products", "no_graphs", "check_kernels"});
  const bool has_stage_stream = purpose == SettingsFor::Training && job.staging().auto_stage() &&
                                job.staging().stage_subgraph_stream_id() != 0;
  find.idle(on_host && has_stage_stream, why, "staging", {"stage_multi_stream", "stage_subgraph_stream_id"});
  return find.take();
}

}  // namespace braid::worker
