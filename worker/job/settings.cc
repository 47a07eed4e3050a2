#include "worker/job/settings.h"

#include "base/error.h"
#include "base/files.h"
#include "proto/job.pb.h"
#include "worker/job/job.h"

namespace braid::worker {

Settings read_settings(const launch::Environment& environment, const std::filesystem::path& config_file,
                       SettingsFor purpose) {
  Settings settings;
  read_environment_settings(environment, purpose, settings);
  if (!config_file.empty())
    read_config_settings(read_file(config_file), config_file.string(), purpose, settings);
  return settings;
}

void log_settings(const Settings& settings) {
  for (const std::string& warning : settings.warnings) log_warning("{}", warning);
  for (const Settings::Field& field : settings.job)
    log_info("{}: {}, unless the job or a flag says otherwise", field.source, field.assignment);
  for (const std::string& note : settings.group_notes) log_info("{}, unless a flag says otherwise", note);
}

proto::Job settings_job(const Settings& settings) {
  proto::Job job;
  for (const Settings::Field& field : settings.job) set_job_field(job, field.assignment);
  return job;
}

}  // namespace braid::worker
