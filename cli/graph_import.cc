// `braid graph import --onnx FILE --out FILE`: an ONNX inference model as a GraphDef.
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "cli/graph_tools.h"
#include "engine/import/import.h"
#include "engine/import/onnx/onnx.h"

namespace braid::cli {
namespace {

struct GraphImportOptions {
  std::string onnx, out;
  std::vector<std::string> shapes;
};

/// "name=2,?,3"; names may have '='.
std::pair<std::string, Shape> parse_shape(const std::string& text) {
  const auto fail = [&] {
    return InvalidArgument("--shape " + text + ": expected name=sizes, e.g. x=2,3 or x=?,3");
  };
  const std::size_t at = text.rfind('=');
  if (at == 0 || at == std::string::npos) throw fail();
  std::vector<std::int64_t> dims;
  for (std::size_t begin = at + 1; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view size = std::string_view(text).substr(begin, end - begin);
    std::int64_t dim = Shape::kUnknown;
    const auto [stop, error] = std::from_chars(size.data(), size.data() + size.size(), dim);
    const bool is_number = error == std::errc() && stop == size.data() + size.size() && dim >= 0;
    if (!is_number && size != "?" && size != "-1") throw fail();
    dims.push_back(is_number ? dim : Shape::kUnknown);
    begin = end + 1;
  }
  return {text.substr(0, at), Shape(std::move(dims))};
}

int import_graph(const GraphImportOptions& options) {
  OnnxInputShapes shapes;
  for (const std::string& text : options.shapes) {
    auto [name, shape] = parse_shape(text);
    if (!shapes.emplace(name, std::move(shape)).second)
      throw InvalidArgument("--shape " + name + " is given twice");
  }
  // The file may be for other programs, too.
  const OnnxImport result = import_onnx(options.onnx, shapes, OwnNodes::None);
  for (const auto& [name, shape] : shapes)
    if (std::none_of(result.inputs.begin(), result.inputs.end(),
                     [&](const OnnxValue& input) { return input.name == name; }))
      throw InvalidArgument("--shape " + name + ": the model has no input of that name");
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

void add_graph_import(CLI::App& graph, Action& action) {
  auto options = std::make_shared<GraphImportOptions>();
  CLI::App* sub = graph.add_subcommand("import", "Write an ONNX inference model as a GraphDef");
  sub->add_option("--onnx", options->onnx, "The model")->check(CLI::ExistingFile)->required();
  sub->add_option("--shape", options->shapes,
                  "name=2,3,?: the shape of an input, where the model leaves it open and its translation "
                  "needs it; may be repeated")
      ->expected(1)
      ->take_all()
      ->trigger_on_parse(false);
  sub->add_option("--out", options->out, "Text when it ends in .pbtxt, else binary")->required();
  sub->callback([options, &action] { action = [options] { return import_graph(*options); }; });
}

}  // namespace braid::cli
