// `braid graph export`: writes a model of the zoo, or that of a job, as a GraphDef, with its loss, or what
// prediction needs alone.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <charconv>
#include <map>
#include <set>

#include "base/error.h"
#include "cli/graph_tools.h"
#include "engine/import/import.h"
#include "engine/import/node_inputs.h"
#include "models/model.h"
#include "proto/graph.pb.h"
#include "proto/job.pb.h"
#include "worker/input/data.h"
#include "worker/input/job_model.h"
#include "worker/job/job.h"
#include "worker/process/op_libraries.h"

namespace braid::cli {
namespace {

struct ExportOptions {
  std::string model, job, data_dir, out;
  std::vector<std::string> set;
  std::vector<std::string> columns;
  ModelConfig config;
  bool inference = false;
};

/// Columns as the shipped jobs have them; --column replaces them.
std::map<std::string, Shape> usual_columns() {
  return {{"image", {28, 28, 1}}, {"dense", {13}},  {"sparse", {26}},  {"label", {}},
          {"click", {}},          {"purchase", {}}, {"history", {20}}, {"item", {1}},
          {"tokens", {32}},       {"x", {1}},       {"y", {1}},        {"z", {1}}};
}

/// "name=28,28,1"; nothing behind '=' is one number a row.
std::pair<std::string, Shape> parse_column(const std::string& text) {
  const std::size_t at = text.find('=');
  std::vector<std::int64_t> dims;
  bool good = at != 0 && at != std::string::npos;
  const char* end = text.data() + text.size();
  for (const char* p = good ? text.data() + at + 1 : end; good && p != end;) {
    std::int64_t dim = 0;
    const auto [stop, error] = std::from_chars(p, end, dim);
    good = error == std::errc() && dim > 0 && (stop == end || *stop == ',');
    dims.push_back(dim);
    p = stop == end ? end : stop + 1;
  }
  if (!good) throw InvalidArgument("--column " + text + ": expected name=size,size,...");
  return {text.substr(0, at), Shape(std::move(dims))};
}

/// The nodes that `values` need.
GraphDef needed_by(const GraphDef& graph, const std::vector<std::string>& values) {
  std::map<std::string, const NodeDef*> by_name;
  for (const NodeDef& node : graph.node()) by_name.emplace(node.name(), &node);
  std::set<std::string> needed;
  for (const std::string& value : values) needed.insert(node_of(value));
  std::vector<std::string> open(needed.begin(), needed.end());
  while (!open.empty()) {
    const NodeDef& node = *by_name.at(open.back());
    open.pop_back();
    for (const std::string& input : node.input())
      if (needed.insert(node_of(input)).second) open.push_back(node_of(input));
  }
  GraphDef result;
  *result.mutable_versions() = graph.versions();
  for (const NodeDef& node : graph.node())
    if (needed.contains(node.name())) *result.add_node() = node;
  return result;
}

/// As a job has it, for the columns of its data.
ModelGraph model_of_job(const ExportOptions& options) {
  const proto::Job job = worker::load_job(options.job, options.set);
  worker::load_op_libraries(job);
  const worker::JobData data = worker::load_data(job, data_directory(options.data_dir), false);
  return worker::job_model(job, *data.train);
}

ModelGraph model_of_flags(ExportOptions& options) {
  options.config.columns = usual_columns();
  for (const std::string& text : options.columns) {
    auto [name, shape] = parse_column(text);
    options.config.columns.insert_or_assign(std::move(name), std::move(shape));
  }
  return build_model(options.model, options.config);
}

int export_graph(ExportOptions& options) {
  if (options.job.empty() == options.model.empty())
    throw InvalidArgument("braid graph export needs one of --model and --job");
  const ModelGraph model = options.job.empty() ? model_of_flags(options) : model_of_job(options);
  std::vector<std::string> outputs;
  for (const ModelOutput& output : model.outputs) outputs.push_back(output.name);
  const GraphDef& predicting = model.inference ? *model.inference : *model.graph;
  const GraphDef graph = options.inference ? needed_by(predicting, outputs) : *model.graph;
  write_graph_file(graph, options.out);
  fmt::print("{}: {} nodes, prediction '{}'", options.out, graph.node_size(), fmt::join(outputs, "', '"));
  if (!options.inference) fmt::print(", loss '{}', label '{}'", model.loss, model.label);
  fmt::print("\n");
  return kExitSuccess;
}

}  // namespace

void add_graph_export(CLI::App& graph, Action& action) {
  auto options = std::make_shared<ExportOptions>();
  CLI::App* sub = graph.add_subcommand("export", "Write a built-in model or a job's model as a GraphDef");
  std::string names;
  for (const std::string& name : model_names()) names += (names.empty() ? "" : ", ") + name;
  add_op_library_option(*sub);
  CLI::Option* job =
      sub->add_option("--job", options->job, "The job whose model to write, for the columns of its data");
  add_options_of_job(*sub, *job, options->set, options->data_dir);
  sub->add_option("--model", options->model, "Instead of --job: " + names);
  sub->add_option("--out", options->out, "Text when it ends in .pbtxt, else binary")->required();
  sub->add_flag("--inference", options->inference, "Write the inference graph: no label, no loss");
  sub->add_option(
         "--column", options->columns,
         "Shape of one row of an input column, name=28,28,1; default: image=28,28,1, dense=13, sparse=26, "
         "history=20, tokens=32")
      ->allow_extra_args(false)
      ->excludes(job);
  sub->add_option("--hidden", options->config.hidden, "Widths of hidden layers, a,b,c")
      ->delimiter(',')
      ->excludes(job);
  sub->add_option("--embedding-dim", options->config.embedding_dim, "Width of embeddings")->excludes(job);
  sub->add_option("--hash-buckets", options->config.hash_buckets, "Rows of each embedding table")
      ->excludes(job);
  sub->add_option("--classes", options->config.classes, "Classes of a classifier")->excludes(job);
  sub->add_option("--dropout", options->config.dropout, "Share of hidden outputs that training drops")
      ->check(CLI::Range(0.0, 0.99))
      ->excludes(job);
  sub->callback([options, &action] { action = [options] { return export_graph(*options); }; });
}

}  // namespace braid::cli
