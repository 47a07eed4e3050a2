// `--config` and the settings of the commands that take it; `--checkpoint`; where data is.
#include "worker/job/settings.h"

#include <CLI/CLI.hpp>

#include "base/env.h"
#include "base/error.h"
#include "cli/commands.h"
#include "worker/process/op_libraries.h"

namespace braid::cli {

void add_config_option(CLI::App& command, std::string& file) {
  command
      .add_option("--config", file,
                  "A text ConfigProto (proto/config.proto). Flags and the job override it; it overrides the\n"
                  "environment. docs/user/tensorflow_settings.md says what each setting does")
      ->check(CLI::ExistingFile);
}

worker::Settings read_process_settings(const std::string& file, worker::SettingsFor purpose) {
  worker::Settings settings = worker::read_settings(launch::process_environment(), file, purpose);
  worker::log_settings(settings);
  return settings;
}

std::vector<std::string> job_settings(const worker::Settings& settings) {
  std::vector<std::string> assignments;
  for (const worker::Settings::Field& field : settings.job) assignments.push_back(field.assignment);
  return assignments;
}

void add_options_of_job(CLI::App& command, CLI::Option& job, std::vector<std::string>& set,
                        std::string& data_directory) {
  command.add_option("--set", set, "With --job: override a field, a.b=value; may be repeated")
      ->allow_extra_args(false)
      ->needs(&job);
  command
      .add_option("--data-dir", data_directory,
                  "With --job: where its input files are; default: $BRAID_DATA, otherwise the current "
                  "directory")
      ->needs(&job);
}

CLI::Option* add_op_library_option(CLI::App& command) {
  return command
      .add_option("--op-library",
                  "Load a shared library with ops of your own (docs/user/own_ops.md); may be repeated")
      ->expected(1)
      ->allow_extra_args(false)
      ->type_name("FILE")
      ->each([](const std::string& file) {
        try {
          worker::load_op_library_of_process(file);
        } catch (const Error& error) {
          throw CLI::ValidationError("--op-library", error.message());
        }
      });
}

CLI::Option* add_checkpoint_option(CLI::App& command, std::string& directory) {
  return command.add_option(
      "--checkpoint", directory,
      "Values of variables: a job's checkpoint.directory (its newest complete checkpoint counts) or a "
      "step-... directory in it.\n"
      "For checkpoints of other programs run `braid ckpt import` first");
}

void add_untrained_flag(CLI::App& command, bool& untrained, CLI::Option& checkpoint) {
  command
      .add_flag("--untrained", untrained,
                "Run without --checkpoint: variables get the initial values of their nodes, otherwise zeros")
      ->excludes(&checkpoint);
}

std::string data_directory(const std::string& flag) {
  return flag.empty() ? env_string("BRAID_DATA").value_or(".") : flag;
}

}  // namespace braid::cli
