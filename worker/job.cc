#include "worker/job.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <numeric>
#include <sstream>

#include "base/error.h"
#include "engine/passes/stream_rules.h"
#include "proto/job.pb.h"

namespace braid::worker {
namespace {

namespace pb = google::protobuf;

std::vector<std::string> field_names(const pb::Descriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->name());
  return names;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string best = nearest(word, candidates);
  std::string all;
  for (const auto& c : candidates) all += (all.empty() ? "" : ", ") + c;
  return (best.empty() ? "" : "; did you mean '" + best + "'?") +
         std::string(best.empty() ? "; known: " + all : "");
}

/// The quoted words of a message of protobuf's parser.
std::vector<std::string> quoted(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; (at = text.find('"', at)) != std::string::npos;) {
    const std::size_t end = text.find('"', at + 1);
    if (end == std::string::npos) break;
    words.push_back(text.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return words;
}

/// Adds the nearest known name to "no field named" and "unknown enumeration value" messages.
std::string with_hint(const std::string& message) {
  const auto words = quoted(message);
  const auto* pool = pb::DescriptorPool::generated_pool();
  if (words.size() >= 2 && message.find("no field named") != std::string::npos) {
    if (const auto* type = pool->FindMessageTypeByName(words[0]))
      return "unknown field '" + words[1] + "' in " + type->name() +
             did_you_mean(words[1], field_names(*type));
  }
  if (words.size() >= 2 && message.find("nknown enumeration value") != std::string::npos) {
    const std::size_t dot = words[1].rfind('.');
    // The parser does not say in which message the field is: the one that has a near value is meant.
    std::vector<std::string> hints;
    for (int i = 0; i < proto::Job::descriptor()->file()->message_type_count(); ++i) {
      const auto* type = proto::Job::descriptor()->file()->message_type(i);
      const auto* field = type->FindFieldByName(words[1].substr(dot == std::string::npos ? 0 : dot + 1));
      if (!field || !field->enum_type()) continue;
      std::vector<std::string> values;
      for (int v = 0; v < field->enum_type()->value_count(); ++v)
        values.push_back(field->enum_type()->value(v)->name());
      if (std::find(values.begin(), values.end(), words[0]) != values.end()) continue;
      hints.push_back("unknown value '" + words[0] + "' of field '" + field->name() + "'" +
                      did_you_mean(words[0], values));
      if (!nearest(words[0], values).empty()) return hints.back();
    }
    if (hints.size() == 1) return hints[0];
  }
  return message;
}

class Collector : public pb::io::ErrorCollector {
 public:
  explicit Collector(std::string_view source) : source_(source) {}
  void AddError(int line, pb::io::ColumnNumber column, const std::string& message) override {
    if (!text.empty()) return;  // what follows the first is noise
    text = source_ + ":" + std::to_string(line + 1) + ":" + std::to_string(column + 1) + ": " +
           with_hint(message);
  }
  void AddWarning(int, pb::io::ColumnNumber, const std::string&) override {}
  std::string text;

 private:
  std::string source_;
};

void parse_into(std::string_view text, std::string_view source, pb::Message& message, bool merge) {
  Collector errors(source);
  pb::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  const std::string copy(text);
  const bool good = merge ? parser.MergeFromString(copy, &message) : parser.ParseFromString(copy, &message);
  if (!good)
    throw InvalidArgument(errors.text.empty() ? std::string(source) + ": not a job file" : errors.text);
}

std::string quote_if_text(const pb::FieldDescriptor& field, const std::string& value) {
  if (field.cpp_type() != pb::FieldDescriptor::CPPTYPE_STRING || value.starts_with('"')) return value;
  return "\"" + value + "\"";
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 2) + 1;
  for (const auto& candidate : candidates) {
    std::vector<std::size_t> row(candidate.size() + 1);
    std::iota(row.begin(), row.end(), 0);
    for (std::size_t i = 1; i <= word.size(); ++i) {
      std::size_t diagonal = row[0];
      row[0] = i;
      for (std::size_t j = 1; j <= candidate.size(); ++j) {
        const bool same = std::tolower(word[i - 1]) == std::tolower(candidate[j - 1]);
        const std::size_t next = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (same ? 0 : 1)});
        diagonal = row[j];
        row[j] = next;
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

proto::Job parse_job(std::string_view text, std::string_view source) {
  proto::Job job;
  parse_into(text, source, job, false);
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
    parse_into(text, "--set " + assignment, *message, true);
  }
}

proto::Job load_job(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  std::ifstream in(file);
  if (!in) throw InvalidArgument("cannot open job file '" + file.string() + "': " + std::strerror(errno));
  if (std::filesystem::is_directory(file))
    throw InvalidArgument("job file '" + file.string() + "' is a directory");
  std::stringstream text;
  text << in.rdbuf();
  proto::Job job = parse_job(text.str(), file.string());
  for (const auto& assignment : overrides) set_job_field(job, assignment);
  fill_job_defaults(job);
  check_job(job);
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
  require(job.checkpoint().every_seconds() >= 0, "checkpoint.every_seconds must not be negative");
  require(job.checkpoint().keep_best() == 0 ||
              (!job.evaluation().disabled() && job.evaluation().every_steps() > 0),
          "checkpoint.keep_best needs evaluation.every_steps: it goes by the evaluation's metric");
  require(job.optimizer().learning_rate() > 0, "optimizer.learning_rate must be positive");
  require(job.streams().count() <= 64, "streams.count must be at most 64");
  require(job.streams().measure_seconds() >= 0, "streams.measure_seconds must not be negative");
  require(job.runtime().steps_in_flight() <= 8, "runtime.steps_in_flight must be at most 8");
  require(job.metrics().sample_every_seconds() >= 0, "metrics.sample_every_seconds must not be negative");
  require(job.metrics().sample_window_seconds() >= 0 && job.metrics().sample_window_seconds() <= 1,
          "metrics.sample_window_seconds must be between 0 and 1");
  check_staging(job);
  require(job.strategy().deadline_seconds() > 0, "strategy.deadline_seconds must be positive");
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
  options.keep_all_events = job.streams().keep_all_events();
  options.forward_propagation = job.streams().forward_propagation();
  if (!job.streams().rules_file().empty())
    options.rules = std::make_shared<const StreamRules>(StreamRules::read(job.streams().rules_file()));
  return options;
}

}  // namespace braid::worker
