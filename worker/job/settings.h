// Settings from where users of multi-stream TensorFlow have them: a text ConfigProto (proto/config.proto) and
// environment variables. They become fields of a job, weaker than what its file says: flags, then the job,
// then the ConfigProto, then the environment. What means nothing here, or nothing for the command that runs,
// is kept as a warning. docs/user/tensorflow_settings.md has the table. Thread rule: values.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "launch/environment.h"

namespace braid::proto {
class Job;
}

namespace braid::worker {

/// Which command reads the settings: the nodes of a step are what its streams are for, or whole requests.
enum class SettingsFor { Training, Inference };

/// Which threads launch the work of a stream group.
enum class LaunchThreads {
  Pools,    // TF_GPU_THREAD_MODE global: the session's pools, or the client's thread where there are none
  Private,  // each group has its own
  Shared,   // all groups share them
};

/// What a session over stream groups takes beside the fields of a job.
struct GroupSettings {
  struct Pool {
    int threads = 1;
    std::string name;
  };
  std::optional<int> groups;
  std::optional<LaunchThreads> launch;
  std::optional<int> launch_threads;
  std::optional<bool> share_memory_limit;
  std::vector<Pool> pools;
};

struct Settings {
  struct Field {
    std::string assignment;  // "streams.count=4", for set_job_field()
    std::string source;      // "TF_GPU_STREAM_GROUP_COUNT"
  };
  std::vector<Field> job;  // weakest first
  GroupSettings groups;
  std::vector<std::string> group_notes;  // what of `groups` comes from where
  std::vector<std::string> warnings;     // each names what has no effect, and why
};

/// Of the environment, then of the ConfigProto in `config_file`, unless that is empty. Throws:
/// InvalidArgument for a value that does not parse, with the variable or the file's line and column; for a
/// field that is not in proto/config.proto, by name.
Settings read_settings(const launch::Environment& environment, const std::filesystem::path& config_file,
                       SettingsFor purpose);
/// The parts of it.
void read_environment_settings(const launch::Environment& environment, SettingsFor purpose,
                               Settings& settings);
void read_config_settings(std::string_view text, std::string_view source, SettingsFor purpose,
                          Settings& settings);

/// Logs the warnings, and what comes from where.
void log_settings(const Settings& settings);
/// A job that says nothing but the settings, for commands without a job file.
proto::Job settings_job(const Settings& settings);

/// What TF_CPP_MIN_LOG_LEVEL asks for; nothing when it is not set, or BRAID_LOG is. Throws: InvalidArgument
/// (either has a value that is none).
std::optional<LogLevel> log_level_setting(const launch::Environment& environment);

}  // namespace braid::worker
