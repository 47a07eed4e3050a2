// The subcommands of `braid`, a file each. Each adds itself to the parser and runs when it was chosen.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "worker/job/settings.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace braid::cli {

/// Set by the chosen subcommand's callback; main runs it after parsing and returns its exit code.
using Action = std::function<int()>;

void add_train(CLI::App& app, Action& action);
void add_launch(CLI::App& app, Action& action);
void add_graph(CLI::App& app, Action& action);
void add_infer(CLI::App& app, Action& action);
void add_predict(CLI::App& app, Action& action);
void add_evaluate(CLI::App& app, Action& action);
void add_data(CLI::App& app, Action& action);
void add_ckpt(CLI::App& app, Action& action);
void add_init(CLI::App& app, Action& action);
void add_doctor(CLI::App& app, Action& action);
void add_devices(CLI::App& app, Action& action);
void add_top(CLI::App& app, Action& action);
void add_trace(CLI::App& app, Action& action);
/// `braid completion` and the hidden `braid man`, which print what all other subcommands say of themselves.
void add_completion(CLI::App& app, Action& action);

/// `--config FILE`: a text ConfigProto. In settings.cc.
void add_config_option(CLI::App& command, std::string& file);
/// The fields of a job among them.
std::vector<std::string> job_settings(const worker::Settings& settings);
/// Of the process's environment and of `file`, with everything about them logged.
worker::Settings read_process_settings(const std::string& file, worker::SettingsFor purpose);

/// `--checkpoint DIR`, what a graph's variables begin with. In settings.cc.
CLI::Option* add_checkpoint_option(CLI::App& command, std::string& directory);
/// `--untrained`, in place of --checkpoint. In settings.cc.
void add_untrained_flag(CLI::App& command, bool& untrained, CLI::Option& checkpoint);

/// `--set` and `--data-dir` of a command that may have a `--job`. In settings.cc.
void add_options_of_job(CLI::App& command, CLI::Option& job, std::vector<std::string>& set,
                        std::string& data_directory);

/// What `--data-dir` says, else the variable BRAID_DATA, else the current directory. In settings.cc.
std::string data_directory(const std::string& flag);

/// `--op-library FILE`, which may be repeated: loads the library as the command line is read. In settings.cc.
CLI::Option* add_op_library_option(CLI::App& command);

/// `--device`: CUDA, CPU or AUTO, as in job files; left empty when it is not given. In train.cc.
void add_device_option(CLI::App& command, std::string& device);

}  // namespace braid::cli
