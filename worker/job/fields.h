// The fields of a job, a line each in fields.cc: default, range, when it is needed, when it has no effect,
// what users of TensorFlow call it. Defaults are filled (defaults.cc), jobs checked (check.cc), fields that
// nothing reads found (unused_fields.cc) and old names read (old_names.cc) by walking it, and a test compares
// it with proto/job.proto and its comments. So a new field is a line in the proto and a line here. Thread
// rule: made once, read only.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace braid::proto {
class Column;
class Job;
}  // namespace braid::proto

namespace braid::worker {

/// What the rules of a field look at: the job, and for a field of a column that column.
struct FieldScope {
  const proto::Job& job;
  const proto::Column* column = nullptr;
};

/// Why something holds, as in "optimizer.kind is SGD"; empty when it does not hold.
using Reason = std::function<std::string(const FieldScope&)>;

/// The numbers that a field may have. Of a repeated field: each of its values.
struct Range {
  double least;
  double most;  // infinity: any that is finite
  bool least_is_out = false, most_is_out = false;
  std::string says;  // "must be positive"

  bool contains(double value) const;
};
Range not_negative();
Range positive();
Range negative();
Range share();  // [0, 1)
Range from_to(double least, double most);
Range at_least(double least);
Range at_most(double most);   // and not negative
Range seconds(double least);  // up to what clocks can count

class JobField {
 public:
  /// "staging.capacity". A field of columns, which are a list: "input.columns.scale".
  explicit JobField(std::string path) : path_(std::move(path)) {}

  /// Where the job does not set the field, or a number or text is 0 or empty. A name is an enum's value.
  JobField&& by_default(bool value) &&;
  JobField&& by_default(double value) &&;
  JobField&& by_default(int value) &&;
  JobField&& by_default(const char* name) &&;
  /// A number that comments write otherwise: "1 MiB".
  JobField&& by_default(double value, std::string text) &&;
  /// One that other fields say; called when those before it have theirs.
  JobField&& by_default(std::string text, std::function<void(proto::Job&)> set) &&;
  /// One that whoever reads the field applies, such as the model.
  JobField&& default_elsewhere(std::string text) &&;

  /// Of a field that is set, after defaults.
  JobField&& in(Range range) &&;
  /// Of one that must be set: always, or for a reason ("schedule.kind STEP_DECAY").
  JobField&& needed() &&;
  JobField&& needed_for(Reason reason) &&;
  /// A setting of it has no effect for that reason. The first of several that holds is told.
  JobField&& idle(Reason reason) &&;
  /// The same where the job computes on the host, which is known only when its device is resolved.
  JobField&& idle_on_host() &&;
  JobField&& idle_on_host_in_training(Reason also = {}) &&;  // `also`: only where that holds
  /// The negative switch that it was, in the same message: `no_tf32: true` is `tf32: false`.
  JobField&& was_not(std::string old_name) &&;
  /// A field of ConfigProto (lower case) or an environment variable that sets it;
  /// docs/user/tensorflow_settings.md has both.
  JobField&& tf(std::string name) &&;

  struct Default {
    enum class Kind { None, Switch, Number, Name, Derived, Elsewhere } kind = Kind::None;
    bool on = false;
    double number = 0;
    std::string text;  // as comments have it
    std::function<void(proto::Job&)> set;
  };
  struct HostRule {
    bool in_training_only = false;
    Reason also;
  };

  const std::string& path() const { return path_; }
  const Default& fallback() const { return default_; }
  const std::optional<Range>& range() const { return range_; }
  bool is_needed() const { return needed_; }
  const Reason& needed_because() const { return needed_for_; }
  const std::vector<Reason>& idle_reasons() const { return idle_; }
  const std::optional<HostRule>& host_rule() const { return host_; }
  const std::string& old_name() const { return old_name_; }  // empty: none
  const std::vector<std::string>& tf_names() const { return tf_; }
  /// Of each column.
  bool is_of_column() const { return path_.starts_with("input.columns."); }

 private:
  std::string path_;
  Default default_;
  std::optional<Range> range_;
  bool needed_ = false;
  Reason needed_for_;
  std::vector<Reason> idle_;
  std::optional<HostRule> host_;
  std::string old_name_;
  std::vector<std::string> tf_;
};

/// All of them, in the order of proto/job.proto.
const std::vector<JobField>& job_fields();

}  // namespace braid::worker
