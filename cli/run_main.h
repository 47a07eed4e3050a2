// For a binary of your own: the command line of `braid` with models (models/model.h, register_model) and ops
// that your program adds before. examples/own_model is one.
#pragma once

namespace braid {

/// Runs the command line and returns the process's exit code. What `braid launch` starts is this binary
/// again. Thread rule: the main thread, once.
int run_main(int argc, char** argv);

}  // namespace braid
