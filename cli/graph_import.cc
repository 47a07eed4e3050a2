// `braid graph import --onnx FILE --out FILE`: an ONNX inference model as a GraphDef.
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/graph_tools.h"
#include "engine/import/import.h"
#include "engine/import/onnx/onnx.h"

namespace braid::cli {
namespace {

struct Options {
  std::string onnx, out;
};

int run(const Options& options) {
  const OnnxImport result = import_onnx(options.onnx);
  write_graph_file(result.graph, options.out);
  fmt::print("{}: {} nodes of {}\n", options.out, result.graph.node_size(), result.nodes);
  const auto list = [](const char* what, const std::vector<OnnxValue>& values) {
    for (const OnnxValue& value : values)
      fmt::print("  {} '{}' {} {}\n", what, value.name, dtype_name(value.dtype), value.shape.to_string());
  };
  list("input", result.inputs);
  list("output", result.outputs);
  return kExitSuccess;
}

}  // namespace

bool is_onnx(const std::string& file) { return file.ends_with(".onnx"); }

GraphDef read_graph(const std::string& file) {
  return is_onnx(file) ? import_onnx(file).graph : read_graph_file(file);
}

void add_graph_import(CLI::App& graph, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = graph.add_subcommand("import", "Write an ONNX inference model as a GraphDef");
  sub->add_option("--onnx", options->onnx, "The model")->check(CLI::ExistingFile)->required();
  sub->add_option("--out", options->out, "Text when it ends in .pbtxt, else binary")->required();
  sub->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace braid::cli
