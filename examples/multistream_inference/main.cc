// multistream_inference MODEL N_IN IN... N_OUT OUT... BATCH ITERS THREADS CONFIG
//
// The positional command line of the inference example of multi-stream TensorFlow, over the library behind
// `braid infer`: MODEL is a GraphDef (binary or text), CONFIG a text ConfigProto. How many stream groups
// there are, and whatever else, is in the environment (TF_GPU_STREAM_GROUP_COUNT, TF_GPU_STREAM_MERGE, ...;
// docs/user/inference.md). Inputs are drawn. ITERS are the requests of each of THREADS clients.
#include <fmt/core.h>

#include <string>
#include <vector>

#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "worker/inference/infer_command.h"

namespace braid {
namespace {

constexpr const char* kUsage =
    "usage: multistream_inference MODEL N_IN IN... N_OUT OUT... BATCH ITERS THREADS CONFIG";

/// Takes one argument after another; what is missing is named.
class Arguments {
 public:
  Arguments(int argc, char** argv) : all_(argv + 1, argv + argc) {}

  std::string text(const std::string& what) {
    if (next_ == all_.size()) throw InvalidArgument(what + " is missing\n" + kUsage);
    return all_[next_++];
  }
  std::int64_t count(const std::string& what, std::int64_t most) {
    const std::string given = text(what);
    const auto value = parse_int(given);
    if (!value || *value < 1 || *value > most)
      throw InvalidArgument(
          fmt::format("{} '{}': expected a number from 1 to {}\n{}", what, given, most, kUsage));
    return *value;
  }
  std::vector<std::string> names(const std::string& what) {
    const std::int64_t count = this->count("the number of " + what + "s", 1000);
    std::vector<std::string> names;
    for (std::int64_t i = 0; i < count; ++i)
      names.push_back(text(fmt::format("{} {} of {}", what, i + 1, count)));
    return names;
  }
  void expect_end() const {
    if (next_ != all_.size()) throw InvalidArgument("'" + all_[next_] + "' is one too many\n" + kUsage);
  }

 private:
  std::vector<std::string> all_;
  std::size_t next_ = 0;
};

int run(int argc, char** argv) {
  Arguments arguments(argc, argv);
  worker::InferCommand command;
  command.graph = arguments.text("MODEL");
  command.inputs = arguments.names("input");
  command.outputs = arguments.names("output");
  command.batch = arguments.count("BATCH", 1 << 24);
  command.requests = static_cast<std::uint64_t>(arguments.count("ITERS", std::int64_t{1} << 40));
  command.clients = static_cast<int>(arguments.count("THREADS", 1024));
  const std::string config = arguments.text("CONFIG");
  arguments.expect_end();
  const launch::Environment environment = launch::process_environment();
  if (const auto level = worker::log_level_setting(environment)) set_log_level(*level);
  const worker::Settings settings =
      worker::read_settings(environment, config, worker::SettingsFor::Inference);
  worker::log_settings(settings);
  return worker::run_infer(command, settings);
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  try {
    return braid::run(argc, argv);
  } catch (const braid::Error& e) {
    braid::log_error("{}: {}", braid::error_code_name(e.code()), e.message());
    return braid::exit_code_for(e.code());
  }
}
