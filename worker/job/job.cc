#include "worker/job/job.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/program/stream_rules.h"
#include "proto/job.pb.h"
#include "worker/job/old_names.h"
#include "worker/job/text_proto.h"
#include "worker/job/unused_fields.h"

namespace braid::worker {
namespace {

namespace pb = google::protobuf;

std::string quote_if_text(const pb::FieldDescriptor& field, const std::string& value) {
  if (field.cpp_type() != pb::FieldDescriptor::CPPTYPE_STRING || value.starts_with('"')) return value;
  std::string quoted = "\"";
  for (const char c : value) {
    if (c == '"' && !quoted.ends_with('\\')) quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

}  // namespace

proto::Job parse_job(std::string_view text, std::string_view source) {
  proto::Job job;
  parse_text(text, source, job);
  check_old_names(job, source);
  for (const std::string& warning : take_new_names(job, source)) log_warning("{}", warning);
  return job;
}

void set_job_field(proto::Job& job, const std::string& assignment) {
  const std::size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0 || assignment[equals - 1] == '.')
    throw InvalidArgument("--set " + assignment + ": expected <field>.<field>=<value>");
  std::string path = assignment.substr(0, equals), value = assignment.substr(equals + 1);
  while (path.ends_with(' ')) path.pop_back();
  pb::Message* message = &job;
  std::stringstream parts(path);
  std::string part;
  std::vector<std::string> names;
  while (std::getline(parts, part, '.')) names.push_back(part);
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::optional<std::int64_t> index;
    std::string name = names[i];
    if (const std::size_t bracket = name.find('['); bracket != std::string::npos && name.back() == ']') {
      index = parse_int(name.substr(bracket + 1, name.size() - bracket - 2)).value_or(-1);
      name.resize(bracket);
    }
    const pb::FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(name);
    if (!field)
      throw InvalidArgument("--set " + assignment + ": unknown field '" + name + "' in " +
                            message->GetDescriptor()->name() +
                            did_you_mean(name, field_names(*message->GetDescriptor())));
    const pb::Reflection* reflection = message->GetReflection();
    if (index && (!field->is_repeated() || i + 1 == names.size()))
      throw InvalidArgument("--set " + assignment + ": '" + name + "' " +
                            (field->is_repeated() ? "is set as a whole" : "is no list"));
    if (i + 1 < names.size()) {
      if (field->cpp_type() != pb::FieldDescriptor::CPPTYPE_MESSAGE)
        throw InvalidArgument("--set " + assignment + ": '" + name + "' has no fields of its own");
      if (field->is_repeated()) {
        if (index.value_or(-1) < 0 || *index >= reflection->FieldSize(*message, field))
          throw InvalidArgument(
              "--set " + assignment + ": '" + name + "' " +
              (reflection->FieldSize(*message, field) == 0
                   ? "is empty: set it as a whole"
                   : "needs an index below " + std::to_string(reflection->FieldSize(*message, field))));
        message = reflection->MutableRepeatedMessage(message, field, static_cast<int>(*index));
      } else {
        message = reflection->MutableMessage(message, field);
      }
      continue;
    }
    std::string text;
    if (field->cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE) {
      const bool in_braces = value.starts_with('{') && value.ends_with('}');
      text = name + (in_braces ? " " + value : " { " + value + " }");
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
  for (const std::string& warning : take_new_names(job, "--set " + assignment)) log_warning("{}", warning);
}

proto::Job load_job(const std::filesystem::path& file, const std::vector<std::string>& overrides,
                    const std::vector<std::string>& settings) {
  std::ifstream in(file);
  if (!in) throw InvalidArgument("cannot open job file '" + file.string() + "': " + std::strerror(errno));
  if (std::filesystem::is_directory(file))
    throw InvalidArgument("job file '" + file.string() + "' is a directory");
  std::stringstream text;
  text << in.rdbuf();
  return load_job_text(text.str(), file.string(), overrides, settings);
}

proto::Job load_job_text(const std::string& text, const std::string& source,
                         const std::vector<std::string>& overrides,
                         const std::vector<std::string>& settings) {
  const proto::Job said = parse_job(text, source);
  proto::Job job;
  for (const auto& assignment : settings) set_job_field(job, assignment);
  if (said.staging().session_stage_subgraph_thread_pool_size() > 0)
    job.mutable_staging()->clear_session_stage_subgraph_thread_pool();
  // The text again, not the message: a field that the file sets to its default is set.
  merge_text(text, source, job);
  take_new_names(job, source);  // of which parse_job() has told
  for (const auto& assignment : overrides) set_job_field(job, assignment);
  const std::vector<std::string> unused = unused_fields(job);
  fill_job_defaults(job);
  check_job(job);
  for (const std::string& setting : unused) log_warning("{}", setting);
  return job;
}

comm::TlsOptions tls_options(const proto::Job& job) {
  const proto::Tls& tls = job.strategy().tls();
  return {tls.certificate_file(), tls.key_file(), tls.ca_file()};
}

bool has_communicator(const proto::Job& job) {
  const auto kind = job.strategy().kind();
  return is_all_reduce(job) || kind == proto::Strategy::HYBRID || kind == proto::Strategy::PS_ALLREDUCE ||
         kind == proto::Strategy::PIPELINE || kind == proto::Strategy::TENSOR ||
         kind == proto::Strategy::EXPERTS;
}

bool is_all_reduce(const proto::Job& job) {
  const auto kind = job.strategy().kind();
  return kind == proto::Strategy::ALLREDUCE || kind == proto::Strategy::MIRRORED;
}

bool has_servers(const proto::Job& job) {
  return job.strategy().kind() == proto::Strategy::PS ||
         job.strategy().kind() == proto::Strategy::PS_ALLREDUCE;
}

bool takes_batches(const proto::Job& job) {
  return job.input().shard() == proto::Input::DYNAMIC && has_servers(job);
}

std::string model_text(const proto::Model& model) {
  if (!model.has_graph()) return model.name();
  const std::filesystem::path file = model.graph().file();
  return (file.has_stem() ? file : file.parent_path()).stem().string();
}

StreamOptions stream_options(const proto::Job& job) {
  StreamOptions options;
  options.count = static_cast<int>(job.streams().count());
  options.policy = *stream_policy_from_name(proto::Streams::Policy_Name(job.streams().policy()));
  if (options.count == 1 && options.policy == StreamPolicy::Auto) options.policy = StreamPolicy::None;
  options.keep_all_events = job.streams().keep_all_events();
  options.forward_propagation = job.streams().forward_propagation();
  if (job.streams().ignore_scopes()) options.scopes = Scopes::Ignored;
  options.scopes_win = job.streams().scopes_win();
  if (!job.streams().memory_waits()) options.memory_waits_from = kNoMemoryWaits;
  if (!job.streams().rules_file().empty())
    options.rules = std::make_shared<const StreamRules>(StreamRules::read(job.streams().rules_file()));
  return options;
}

std::vector<int> visible_devices(const proto::Job& job) {
  const std::string& list = job.runtime().visible_device_list();
  std::vector<int> devices;
  for (std::size_t begin = 0; !list.empty() && begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const auto device = parse_int(list.substr(begin, end - begin));
    if (!device || *device < 0 || *device > std::numeric_limits<int>::max() ||
        std::find(devices.begin(), devices.end(), *device) != devices.end())
      throw InvalidArgument(
          fmt::format("runtime.visible_device_list '{}': expected distinct GPU ordinals, such as 1,0", list));
    devices.push_back(static_cast<int>(*device));
    begin = end + 1;
  }
  return devices;
}

PrecisionOptions precision_of(const proto::Job& job) {
  const proto::Runtime& runtime = job.runtime();
  PrecisionOptions options;
  if (runtime.precision() == proto::Runtime::BF16) options.half = DType::BFloat16;
  if (runtime.precision() == proto::Runtime::FP16) options.half = DType::Float16;
  const proto::MixedPrecision& mixed = runtime.mixed_precision();
  options.keep_ops.assign(mixed.keep_ops().begin(), mixed.keep_ops().end());
  options.keep_nodes = mixed.keep_nodes();
  return options;
}

bool uses_tf32(const proto::Job& job) {
  switch (job.runtime().precision()) {
    case proto::Runtime::FP32:
      return false;
    case proto::Runtime::TF32:
      return true;
    default:
      return job.runtime().tf32();
  }
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
