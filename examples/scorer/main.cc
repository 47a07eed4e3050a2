// scorer MODEL CHECKPOINT OUTPUT NAME=VALUE...
//
// The smallest server of predictions: a graph of `braid graph export --inference`, the values of a job's
// step-... directory, and one request over a session of two stream groups, which any number of threads may
// call at once. Each input is one row of one number. examples/scorer/CMakeLists.txt is how a project outside
// of this one builds it.
#include <fmt/core.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/error.h"
#include "engine/import/import.h"
#include "proto/graph.pb.h"
#include "worker/checkpoint/stored_variables.h"
#include "worker/inference/inference_session.h"

namespace braid {
namespace {

constexpr const char* kUsage = "usage: scorer MODEL CHECKPOINT OUTPUT NAME=VALUE...";

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() < 4) throw InvalidArgument(kUsage);
  const std::string model = arguments[0], output = arguments[2];
  std::vector<std::string> names;
  std::vector<Tensor> row;
  for (std::size_t i = 3; i < arguments.size(); ++i) {
    const std::size_t at = arguments[i].find('=');
    const auto value = at == std::string::npos ? std::nullopt : parse_double(arguments[i].substr(at + 1));
    if (!value) throw InvalidArgument(arguments[i] + ": expected NAME=VALUE\n" + kUsage);
    names.push_back(arguments[i].substr(0, at));
    row.push_back(Tensor::from<float>(Shape{1, 1}, std::vector<float>{static_cast<float>(*value)}));
  }

  Runtime runtime({.intra_op_threads = 1});
  const worker::StoredVariables stored(read_checkpoint(arguments[1]));
  worker::InferenceOptions options;
  options.groups = 2;
  options.first_value = [&](const Graph& graph, const VariableInfo& variable) {
    return stored.value(graph, variable);
  };
  worker::InferenceSession session(import_graph(read_graph_file(model), model), names, {output}, options,
                                   runtime);
  const std::vector<Tensor> answers = session.run({row}, WaitContext::with_timeout(std::chrono::seconds(10)));
  fmt::print("{}\n", answers[0].data<float>()[0]);
  return kExitSuccess;
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  try {
    return braid::run({argv + 1, argv + argc});
  } catch (const braid::Error& e) {
    fmt::print(stderr, "{}: {}\n", braid::error_code_name(e.code()), e.message());
    return braid::exit_code_for(e.code());
  }
}
