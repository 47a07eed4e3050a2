#include "worker/job.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/log.h"
#include "engine/passes/stream_rules.h"
#include "proto/job.pb.h"
#include "worker/idle_settings.h"
#include "worker/text_proto.h"

namespace braid::worker {
namespace {

namespace pb = google::protobuf;

std::string quote_if_text(const pb::FieldDescriptor& field, const std::string& value) {
  if (field.cpp_type() != pb::FieldDescriptor::CPPTYPE_STRING || value.starts_with('"')) return value;
  return "\"" + value + "\"";
}

}  // namespace

proto::Job parse_job(std::string_view text, std::string_view source) {
  proto::Job job;
  parse_text(text, source, job);
  return job;
}

void set_job_field(proto::Job& job, const std::string& assignment) {
  const std::size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0)
    throw InvalidArgument("--set " + assignment + ": expected <field>.<field>=<value>");
  const std::string path = assignment.substr(0, equals), value = assignment.substr(equals + 1);
  pb::Message* message = &job;
  std::stringstream parts(path);
  std::string part;
  std::vector<std::string> names;
  while (std::getline(parts, part, '.')) names.push_back(part);
  for (std::size_t i = 0; i < names.size(); ++i) {
    int index = -1;
    std::string name = names[i];
    if (const std::size_t bracket = name.find('['); bracket != std::string::npos && name.back() == ']') {
      index = std::atoi(name.c_str() + bracket + 1);
      name.resize(bracket);
    }
    const pb::FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(name);
    if (!field)
      throw InvalidArgument("--set " + assignment + ": unknown field '" + name + "' in " +
                            message->GetDescriptor()->name() +
                            did_you_mean(name, field_names(*message->GetDescriptor())));
    const pb::Reflection* reflection = message->GetReflection();
    if (i + 1 < names.size()) {
      if (field->cpp_type() != pb::FieldDescriptor::CPPTYPE_MESSAGE)
        throw InvalidArgument("--set " + assignment + ": '" + name + "' has no fields of its own");
      if (field->is_repeated()) {
        if (index < 0 || index >= reflection->FieldSize(*message, field))
          throw InvalidArgument("--set " + assignment + ": '" + name + "' needs an index below " +
                                std::to_string(reflection->FieldSize(*message, field)));
        message = reflection->MutableRepeatedMessage(message, field, index);
      } else {
        message = reflection->MutableMessage(message, field);
      }
      continue;
    }
    std::string text;
    if (field->cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE) {
      text = name + " { " + value + " }";
    } else if (field->is_repeated()) {
      reflection->ClearField(message, field);
      std::stringstream items(value);
      for (std::string item; std::getline(items, item, ',');)
        text += name + ": " + quote_if_text(*field, item) + "\n";
    } else {
      text = name + ": " + quote_if_text(*field, value);
    }
    merge_text(text, "--set " + assignment, *message);
  }
}

proto::Job load_job(const std::filesystem::path& file, const std::vector<std::string>& overrides,
                    const std::vector<std::string>& settings) {
  std::ifstream in(file);
  if (!in) throw InvalidArgument("cannot open job file '" + file.string() + "': " + std::strerror(errno));
  if (std::filesystem::is_directory(file))
    throw InvalidArgument("job file '" + file.string() + "' is a directory");
  std::stringstream text;
  text << in.rdbuf();
  const proto::Job said = parse_job(text.str(), file.string());
  proto::Job job;
  for (const auto& assignment : settings) set_job_field(job, assignment);
  if (said.staging().session_stage_subgraph_thread_pool_size() > 0)
    job.mutable_staging()->clear_session_stage_subgraph_thread_pool();
  // The text again, not the message: a field that the file sets to its default is set.
  merge_text(text.str(), file.string(), job);
  for (const auto& assignment : overrides) set_job_field(job, assignment);
  const std::vector<std::string> idle = idle_settings(job);
  fill_job_defaults(job);
  check_job(job);
  for (const std::string& setting : idle) log_warning("{}", setting);
  return job;
}

void fill_job_defaults(proto::Job& job) {
  auto set = [](auto current, auto fallback, auto setter) {
    if (current == decltype(current){}) setter(static_cast<decltype(current)>(fallback));
  };
  if (job.name().empty()) job.set_name(job.model().name());
  auto& staging = *job.mutable_staging();
  set(staging.capacity(), 1, [&](auto v) { staging.set_capacity(v); });
  set(staging.num_threads(), 1, [&](auto v) { staging.set_num_threads(v); });
  set(staging.timeout_millis(), 300000U, [&](auto v) { staging.set_timeout_millis(v); });
  set(job.streams().count(), 1U, [&](auto v) { job.mutable_streams()->set_count(v); });
  if (!job.streams().has_batch_siblings())
    job.mutable_streams()->set_batch_siblings(proto::Streams::WITHIN_SCOPES);
  set(job.streams().measure_seconds(), 1.0, [&](auto v) { job.mutable_streams()->set_measure_seconds(v); });
  auto& strategy = *job.mutable_strategy();
  set(strategy.bucket_bytes(), std::int64_t{1} << 20, [&](auto v) { strategy.set_bucket_bytes(v); });
  set(strategy.deadline_seconds(), 60.0, [&](auto v) { strategy.set_deadline_seconds(v); });
  set(strategy.start_deadline_seconds(), 120.0, [&](auto v) { strategy.set_start_deadline_seconds(v); });
  auto& optimizer = *job.mutable_optimizer();
  const OptimizerSpec spec;
  set(optimizer.momentum(), spec.momentum, [&](auto v) { optimizer.set_momentum(v); });
  set(optimizer.beta1(), spec.beta1, [&](auto v) { optimizer.set_beta1(v); });
  set(optimizer.beta2(), spec.beta2, [&](auto v) { optimizer.set_beta2(v); });
  set(optimizer.epsilon(), spec.epsilon, [&](auto v) { optimizer.set_epsilon(v); });
  set(optimizer.initial_accumulator(), spec.initial_accumulator,
      [&](auto v) { optimizer.set_initial_accumulator(v); });
  set(job.evaluation().batch_size(), job.input().global_batch_size(),
      [&](auto v) { job.mutable_evaluation()->set_batch_size(v); });
  set(job.evaluation().patience_seconds(), 3600.0,
      [&](auto v) { job.mutable_evaluation()->set_patience_seconds(v); });
  set(job.checkpoint().keep(), 3U, [&](auto v) { job.mutable_checkpoint()->set_keep(v); });
  auto& metrics = *job.mutable_metrics();
  set(metrics.sample_every_seconds(), 5.0, [&](auto v) { metrics.set_sample_every_seconds(v); });
  set(metrics.sample_window_seconds(), 0.05, [&](auto v) { metrics.set_sample_window_seconds(v); });
  set(job.runtime().steps_in_flight(), 2U, [&](auto v) { job.mutable_runtime()->set_steps_in_flight(v); });
}

namespace {

/// What can be checked before there is anything to stage: the rest of check_stage_options() needs the pools.
void check_staging(const proto::Job& job) {
  const proto::Staging& staging = job.staging();
  const auto require = [&](bool good, const std::string& what) {
    if (!good) throw InvalidArgument("job '" + job.name() + "': staging." + what);
  };
  require(staging.capacity() == proto::Staging::AUTO || staging.capacity() >= 1,
          "capacity must be at least 1 or AUTO, got " + std::to_string(staging.capacity()));
  require(staging.num_threads() == proto::Staging::AUTO || staging.num_threads() >= 1,
          "num_threads must be at least 1 or AUTO, got " + std::to_string(staging.num_threads()));
  const int pools = staging.session_stage_subgraph_thread_pool_size();
  const int pool = staging.stage_subgraph_thread_pool_id();
  if (staging.use_stage_subgraph_thread_pool()) {
    require(pools > 0,
            "use_stage_subgraph_thread_pool is set, but no session_stage_subgraph_thread_pool is declared");
    require(pool >= 0 && pool < pools, "stage_subgraph_thread_pool_id must be in [0, " +
                                           std::to_string(pools - 1) + "], got " + std::to_string(pool));
  }
  const int stream = staging.stage_subgraph_stream_id();
  require(stream == 0 || staging.stage_multi_stream(),
          "stage_subgraph_stream_id is " + std::to_string(stream) + ", but stage_multi_stream is not set");
  require(stream >= 0 && (stream == 0 || static_cast<std::uint32_t>(stream) < job.streams().count()),
          "stage_subgraph_stream_id must be in [0, " + std::to_string(job.streams().count() - 1) + "], got " +
              std::to_string(stream));
}

}  // namespace

void check_job(const proto::Job& job) {
  auto require = [&](bool good, const std::string& what) {
    if (!good) throw InvalidArgument("job '" + job.name() + "': " + what);
  };
  require(!job.model().name().empty(), "model.name is missing");
  require(job.model().embedding_init() >= 0, "model.embedding_init must not be negative");
  require(job.model().experts() >= 0, "model.experts must not be negative");
  require(job.model().dropout() >= 0 && job.model().dropout() < 1, "model.dropout must be in [0, 1)");
  require(job.steps() > 0 || job.epochs() > 0, "one of steps and epochs must be positive");
  require(job.input().format() != proto::Input::FORMAT_UNSPECIFIED,
          "input.format is missing (IDX, CSV, CRITEO, TFRECORD, TEXT, GENERATOR or SYNTHETIC)");
  require(job.input().global_batch_size() > 0, "input.global_batch_size must be positive");
  require(job.input().shuffle_buffer() >= 0, "input.shuffle_buffer must not be negative");
  require(job.input().shard() != proto::Input::FILES || job.steps() > 0,
          "input.shard FILES needs steps: the workers' files may differ in length");
  require(job.input().shard() == proto::Input::ALL ||
              (job.input().format() != proto::Input::IDX && job.input().format() != proto::Input::SYNTHETIC &&
               job.input().format() != proto::Input::GENERATOR),
          "input.shard is for CSV, CRITEO, TFRECORD and TEXT");
  require(job.input().format() != proto::Input::GENERATOR || job.input().generator().rows() > 0,
          "input.format GENERATOR needs input.generator.rows");
  // Far below what clocks count, and for a deadline far above the beat by which servers know who is alive.
  constexpr double kMostSeconds = 1e7;
  const auto require_seconds = [&](const std::string& field, double seconds, double least) {
    require(seconds >= least && seconds <= kMostSeconds,
            fmt::format("{} must be from {} to {:.0f}, got {}", field, least, kMostSeconds, seconds));
  };
  require_seconds("strategy.deadline_seconds", job.strategy().deadline_seconds(), 0.01);
  require_seconds("strategy.start_deadline_seconds", job.strategy().start_deadline_seconds(), 0.01);
  require_seconds("evaluation.patience_seconds", job.evaluation().patience_seconds(), 0.01);
  require_seconds("checkpoint.every_seconds", job.checkpoint().every_seconds(), 0);
  require_seconds("streams.measure_seconds", job.streams().measure_seconds(), 0);
  require_seconds("metrics.sample_every_seconds", job.metrics().sample_every_seconds(), 0);
  require_seconds("metrics.progress_seconds", job.metrics().progress_seconds(), 0);
  require(job.checkpoint().keep_best() == 0 ||
              (!job.evaluation().disabled() && job.evaluation().every_steps() > 0),
          "checkpoint.keep_best needs evaluation.every_steps: it goes by the evaluation's metric");
  require(job.optimizer().learning_rate() > 0, "optimizer.learning_rate must be positive");
  require(job.streams().count() <= 64, "streams.count must be at most 64");
  require(static_cast<std::uint32_t>(job.streams().priorities_size()) <= job.streams().count(),
          "streams.priorities are more than streams.count");
  for (const int priority : job.streams().priorities())
    require(priority >= 0 && priority <= 5, "streams.priorities must be from 0 to 5");
  require(job.runtime().steps_in_flight() <= 8, "runtime.steps_in_flight must be at most 8");
  require(job.runtime().device_memory_fraction() >= 0 && job.runtime().device_memory_fraction() <= 1,
          "runtime.device_memory_fraction must be between 0 and 1");
  require(job.metrics().sample_window_seconds() >= 0 && job.metrics().sample_window_seconds() <= 1,
          "metrics.sample_window_seconds must be between 0 and 1");
  check_staging(job);
  require(job.strategy().bucket_bytes() >= 0, "strategy.bucket_bytes must not be negative");
  const proto::Tls& tls = job.strategy().tls();
  const int given = !tls.certificate_file().empty() + !tls.key_file().empty() + !tls.ca_file().empty();
  require(given == 0 || given == 3, "strategy.tls needs certificate_file, key_file and ca_file");
  const auto consistency = job.strategy().consistency();
  require(consistency == proto::Strategy::BSP || consistency == proto::Strategy::ASP,
          "strategy.consistency " + proto::Strategy::Consistency_Name(consistency) +
              " is not available in this build; BSP and ASP are");
}

OptimizerSpec optimizer_spec(const proto::Job& job) {
  const auto& from = job.optimizer();
  OptimizerSpec spec;
  switch (from.kind()) {
    case proto::Optimizer::MOMENTUM:
      spec.kind = OptimizerKind::Momentum;
      break;
    case proto::Optimizer::ADAGRAD:
      spec.kind = OptimizerKind::Adagrad;
      break;
    case proto::Optimizer::ADAM:
      spec.kind = OptimizerKind::Adam;
      break;
    default:
      spec.kind = OptimizerKind::Sgd;
      break;
  }
  spec.momentum = from.momentum();
  spec.nesterov = from.nesterov();
  spec.beta1 = from.beta1();
  spec.beta2 = from.beta2();
  spec.epsilon = from.epsilon();
  spec.initial_accumulator = from.initial_accumulator();
  spec.weight_decay = from.weight_decay();
  return spec;
}

comm::TlsOptions tls_options(const proto::Job& job) {
  const proto::Tls& tls = job.strategy().tls();
  return {tls.certificate_file(), tls.key_file(), tls.ca_file()};
}

StreamOptions stream_options(const proto::Job& job) {
  StreamOptions options;
  options.count = static_cast<int>(job.streams().count());
  options.policy = *stream_policy_from_name(proto::Streams::Policy_Name(job.streams().policy()));
  if (options.count == 1 && options.policy == StreamPolicy::Auto) options.policy = StreamPolicy::None;
  options.keep_all_events = job.streams().keep_all_events();
  options.forward_propagation = job.streams().forward_propagation();
  if (!job.streams().rules_file().empty())
    options.rules = std::make_shared<const StreamRules>(StreamRules::read(job.streams().rules_file()));
  return options;
}

BatchSiblings batch_siblings_of(const proto::Job& job) {
  switch (job.streams().batch_siblings()) {
    case proto::Streams::WITHIN_SCOPES:
      return BatchSiblings::WithinScopes;
    case proto::Streams::ACROSS_SCOPES:
      return BatchSiblings::AcrossScopes;
    default:
      return BatchSiblings::Off;
  }
}

}  // namespace braid::worker
