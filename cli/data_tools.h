// The subcommands of `braid data` that work on files of any format.
#pragma once

#include "cli/commands.h"

namespace braid::cli {

/// `braid data show FILE`: the first records, and what all of them have in common.
void add_data_show(CLI::App& data, Action& action);
/// `braid data convert FILE... --out FILE`.
void add_data_convert(CLI::App& data, Action& action);
void add_data_stats(CLI::App& data, Action& action);
void add_data_split(CLI::App& data, Action& action);
void add_data_shuffle(CLI::App& data, Action& action);

}  // namespace braid::cli
