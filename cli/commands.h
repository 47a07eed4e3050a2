// The subcommands of `braid`, a file each. Each adds itself to the parser and runs when it was chosen.
#pragma once

#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace braid::cli {

/// Set by the chosen subcommand's callback; main runs it after parsing and returns its exit code.
using Action = std::function<int()>;

void add_train(CLI::App& app, Action& action);
void add_launch(CLI::App& app, Action& action);
void add_graph(CLI::App& app, Action& action);
void add_data(CLI::App& app, Action& action);
void add_ckpt(CLI::App& app, Action& action);

/// `--device`: CUDA, CPU or AUTO, as in job files; left empty when it is not given. In train.cc.
void add_device_option(CLI::App& command, std::string& device);

}  // namespace braid::cli
