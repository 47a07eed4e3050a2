// The table of fields says all that proto/job.proto has, and both name the same defaults.
#include "worker/job/fields.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "base/files.h"
#include "base/optim.h"
#include "proto/job.pb.h"
#include "worker/job/field_path.h"
#include "worker/job/job.h"
#include "worker/job/optimizers.h"
#include "worker/job/settings.h"

namespace braid::worker {
namespace {

namespace pb = google::protobuf;

/// Paths of all fields that are no message of single ones; a column's once.
void collect(const pb::Descriptor& type, const std::string& prefix, std::set<std::string>& paths) {
  for (int i = 0; i < type.field_count(); ++i) {
    const pb::FieldDescriptor& field = *type.field(i);
    const std::string path = prefix + field.name();
    if (field.options().deprecated()) continue;
    if (!field.message_type() || field.is_repeated()) paths.insert(path);
    if (field.message_type() && path != "input.csv.columns")
      collect(*field.message_type(), path + ".", paths);
  }
}

const pb::FieldDescriptor* find_field(const std::string& path) {
  const pb::Descriptor* type = proto::Job::descriptor();
  const pb::FieldDescriptor* field = nullptr;
  std::stringstream parts(path);
  for (std::string part; std::getline(parts, part, '.');) {
    field = type ? type->FindFieldByName(part) : nullptr;
    if (!field) return nullptr;
    type = field->message_type();
  }
  return field;
}

TEST(JobFieldsTest, EveryFieldHasOneLine) {
  std::set<std::string> all;
  collect(*proto::Job::descriptor(), "", all);
  std::set<std::string> seen;
  for (const JobField& field : job_fields()) {
    EXPECT_TRUE(find_field(field.path())) << field.path() << " is not in proto/job.proto";
    EXPECT_TRUE(seen.insert(field.path()).second) << field.path() << " has two lines";
  }
  for (const std::string& path : all) EXPECT_TRUE(seen.contains(path)) << path << " has no line in fields.cc";
}

TEST(JobFieldsTest, ALineFitsTheTypeOfItsField) {
  for (const JobField& line : job_fields()) {
    const pb::FieldDescriptor& field = *find_field(line.path());
    const auto kind = line.fallback().kind;
    const bool is_switch = field.cpp_type() == pb::FieldDescriptor::CPPTYPE_BOOL;
    EXPECT_EQ(kind == JobField::Default::Kind::Switch, is_switch && line.fallback().on) << line.path();
    EXPECT_TRUE(!line.fallback().on || field.has_presence()) << line.path() << " must be optional";
    if (kind == JobField::Default::Kind::Name) {
      ASSERT_TRUE(field.enum_type() && field.has_presence()) << line.path();
      EXPECT_TRUE(field.enum_type()->FindValueByName(line.fallback().text)) << line.path();
    }
    const bool is_number =
        field.cpp_type() != pb::FieldDescriptor::CPPTYPE_STRING && !field.message_type() && !is_switch;
    EXPECT_TRUE(!line.range() || is_number) << line.path();
    const bool has_number = kind == JobField::Default::Kind::Number;
    EXPECT_TRUE(!line.range() || !has_number || line.range()->contains(line.fallback().number))
        << line.path();
    if (line.old_name().empty()) continue;
    const pb::FieldDescriptor* old = field.containing_type()->FindFieldByName(line.old_name());
    ASSERT_TRUE(old) << line.path();
    EXPECT_TRUE(old->options().deprecated() && old->has_presence()) << line.old_name();
  }
}

/// The comment of each field in a .proto: what stands behind it, on the lines above it and, indented further,
/// below it. By message and field, "Runtime.tf32".
std::map<std::string, std::string> comments_of(const std::string& text) {
  const std::regex message_line(R"(^\s*message (\w+) \{)");
  const std::regex field_line(
      R"(^  (?:optional |repeated )?[\w.]+ (\w+) = \d+(?: \[[^\]]*\])?;\s*(?:// ?(.*))?$)");
  const std::regex comment_line(R"(^ *// ?(.*)$)");
  std::map<std::string, std::string> comments;
  std::string message, above, last;
  std::stringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_search(line, match, message_line)) message = match[1];
    if (std::regex_match(line, match, field_line)) {
      last = message + "." + match[1].str();
      comments[last] = above + " " + match[2].str();
      above.clear();
    } else if (std::regex_match(line, match, comment_line)) {
      const bool continues = line.starts_with("      ") && !last.empty();
      (continues ? comments[last] : above) += " " + match[1].str();
    } else {
      above.clear();
      last.clear();
    }
  }
  return comments;
}

TEST(JobFieldsTest, CommentsNameTheDefaultsOfTheTable) {
  const auto comments =
      comments_of(read_file(std::filesystem::path(BRAID_SOURCE_DIR) / "proto" / "job.proto"));
  ASSERT_GT(comments.size(), 100U);
  const std::regex named(R"(\bdefault:? (true|false|[A-Z_]{2,}|[0-9.e-]*[0-9](?: MiB)?)(?=[\s;,.:)]|$))");
  for (const JobField& line : job_fields()) {
    const pb::FieldDescriptor& field = *find_field(line.path());
    const auto comment = comments.find(field.containing_type()->name() + "." + field.name());
    ASSERT_NE(comment, comments.end()) << line.path();
    std::smatch match;
    const bool has_value = std::regex_search(comment->second, match, named);
    const std::string value = has_value ? match[1].str() : std::string();
    const JobField::Default& fallback = line.fallback();
    const std::string where = line.path() + ": '" + comment->second + "'";
    switch (fallback.kind) {
      case JobField::Default::Kind::None:
        EXPECT_TRUE(!has_value || value == "0") << where;
        break;
      case JobField::Default::Kind::Number:
        ASSERT_TRUE(has_value) << where << " does not name " << fallback.text;
        EXPECT_TRUE(value == fallback.text || std::stod(value) == fallback.number) << where;
        break;
      case JobField::Default::Kind::Switch:
      case JobField::Default::Kind::Name:
        EXPECT_EQ(value, fallback.text) << where;
        break;
      case JobField::Default::Kind::Derived:
      case JobField::Default::Kind::Elsewhere:
        EXPECT_THAT(comment->second, testing::HasSubstr("default")) << where;
        break;
    }
  }
}

TEST(JobFieldsTest, OptimizersHaveTheDefaultsOfTheirFormulas) {
  proto::Job job;
  fill_job_defaults(job);
  const OptimizerSpec spec, of_job = Optimizers(job).spec(0);
  EXPECT_EQ(of_job.momentum, spec.momentum);
  EXPECT_EQ(of_job.beta1, spec.beta1);
  EXPECT_EQ(of_job.beta2, spec.beta2);
  EXPECT_EQ(of_job.epsilon, spec.epsilon);
  EXPECT_EQ(of_job.initial_accumulator, spec.initial_accumulator);
}

/// The field of TensorFlow's settings, or the variable, behind "file: field".
std::string tf_name(const std::string& source) { return source.substr(source.rfind(' ') + 1); }

TEST(JobFieldsTest, SettingsOfTensorFlowGoWhereTheTableSays) {
  Settings settings;
  read_config_settings(
      "allow_soft_placement: false log_device_placement: true intra_op_parallelism_threads: 3 gpu_options { "
      "per_process_gpu_memory_fraction: 0.5 allow_growth: false visible_device_list: '0' } "
      "session_stage_subgraph_thread_pool { } graph_options { optimizer_options { stage_multi_stream: true } "
      "rewrite_options { use_multi_stream: ON multi_stream_opts { multi_stream_num: 2 partition_policy: "
      "FULL_GRAPH_PARTITION } } }",
      "c", SettingsFor::Training, settings);
  read_environment_settings({{"TF_NODE_LEVEL_MULTISTREAM", "true"},
                             {"TF_GPU_STREAM_GROUP_COUNT", "2"},
                             {"TF_REDUCE_STREAM_WAIT", "true"},
                             {"TF_MULTI_STREAM_ALLOW_FORWARD_PROPAGATION", "true"},
                             {"TF_STREAM_FROM_FILE", "f"},
                             {"TF_GPU_STREAM_MERGE", "true"},
                             {"TF_FORCE_GPU_ALLOW_GROWTH", "true"}},
                            SettingsFor::Training, settings);
  std::set<std::string> written, told;
  for (const Settings::Field& field : settings.job)
    written.insert(tf_name(field.source) + " -> " + field.assignment.substr(0, field.assignment.find('=')));
  for (const JobField& field : job_fields())
    for (const std::string& name : field.tf_names())
      if (!name.ends_with("use_multi_stream")) told.insert(name + " -> " + field.path());
  EXPECT_EQ(written, told);
}

}  // namespace
}  // namespace braid::worker
