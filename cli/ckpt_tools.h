// The subcommands of `braid ckpt` that work on checkpoints of any kind (ckpt_values.h).
#pragma once

#include <string>
#include <vector>

#include "cli/ckpt_values.h"
#include "cli/commands.h"

namespace braid::cli {

/// `braid ckpt export SRC --out FILE.npz` or, for TensorFlow, a prefix.
void add_ckpt_export(CLI::App& ckpt, Action& action);
/// `braid ckpt import SRC --out DIR`: a checkpoint that `braid train --resume` goes on from.
void add_ckpt_import(CLI::App& ckpt, Action& action);
/// `braid ckpt diff A B`: exit 0 when they are the same, else 1.
void add_ckpt_diff(CLI::App& ckpt, Action& action);

/// Our names of what a TensorFlow checkpoint has: {name there, name here}. Without what is no variable (the
/// object graph, counters of saves). Slots of TensorFlow's optimizers become ours: "w/Adam" -> "w/m",
/// "w/Momentum" -> "w/momentum".
std::vector<std::pair<std::string, std::string>> tensorflow_names(const ValueSource& source);

}  // namespace braid::cli
