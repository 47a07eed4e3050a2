#include "cli/graph_model_flags.h"

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "proto/job.pb.h"

namespace braid::cli {
namespace {

std::pair<std::string, std::string> at_equals(const char* flag, const std::string& text,
                                              const char* expected) {
  const std::size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos || equals + 1 == text.size())
    throw InvalidArgument(std::string(flag) + " " + text + ": expected " + expected);
  return {text.substr(0, equals), text.substr(equals + 1)};
}

}  // namespace

proto::TrainedGraph GraphModelFlags::message() const {
  proto::TrainedGraph graph;
  graph.set_file(file);
  graph.set_inference_file(inference_file);
  graph.set_loss(loss);
  graph.set_prediction(prediction);
  graph.set_label(label);
  graph.set_trainable(trainable);
  graph.set_frozen(frozen);
  graph.set_promote(promote);
  graph.set_initial_file(initial_file);
  if (!train_op.empty()) {
    graph.set_gradients(proto::TrainedGraph::KEEP);
    graph.set_train_op(train_op);
  }
  for (const std::string& update : updates) graph.add_updates(update);
  if (!attach.empty()) {
    const auto [kind, value] = at_equals("--attach", attach, "KIND=VALUE, such as SIGMOID=logits");
    proto::AttachedLoss::Kind parsed{};
    if (!proto::AttachedLoss::Kind_Parse(kind, &parsed))
      throw InvalidArgument("--attach " + attach + ": the kinds are SIGMOID, SOFTMAX and SQUARED");
    graph.mutable_attach()->set_kind(parsed);
    graph.mutable_attach()->set_prediction(value);
    if (graph.prediction().empty()) graph.set_prediction(value);
    if (!label.empty()) graph.mutable_attach()->set_label(label);
  }
  for (const std::string& text : feeds) {
    const auto [value, column] = at_equals("--feed", text, "VALUE=COLUMN");
    proto::GraphFeed& feed = *graph.add_feeds();
    feed.set_value(value);
    feed.set_column(column);
  }
  for (const std::string& text : constants) {
    const auto [value, constant] = at_equals("--constant", text, "VALUE=NUMBER, or VALUE=NUMBER/NUMBER");
    const std::size_t slash = constant.find('/');
    proto::GraphFeed& feed = *graph.add_feeds();
    feed.set_value(value);
    feed.set_constant(constant.substr(0, slash));
    if (slash != std::string::npos) feed.set_eval(constant.substr(slash + 1));
  }
  return graph;
}

void add_graph_model_flags(CLI::App& command, GraphModelFlags& flags) {
  command.add_option("--loss", flags.loss, "With a graph: the value that training makes smaller");
  command.add_option("--attach", flags.attach,
                     "With a graph that has no loss: SIGMOID=logits, SOFTMAX=logits or SQUARED=value");
  command.add_option("--prediction", flags.prediction, "With a graph: what it predicts, for metrics");
  command.add_option("--label-column", flags.label, "With a graph: the column with the truth; default label");
  command.add_option("--feed", flags.feeds, "With a graph: VALUE=COLUMN; may be repeated")
      ->allow_extra_args(false);
  command
      .add_option("--constant", flags.constants,
                  "With a graph: VALUE=NUMBER fed in each step, VALUE=true/false: in training and in "
                  "evaluations; may be repeated")
      ->allow_extra_args(false);
  command.add_option("--trainable", flags.trainable,
                     "With a graph: pattern (RE2) of variables that are trained");
  command.add_option("--frozen", flags.frozen, "With a graph: pattern of variables that keep their values");
  command.add_option("--promote", flags.promote, "With a graph: pattern of constants that become variables");
  command.add_option("--updates", flags.updates, "With a graph: nodes that run in each step; NONE: none")
      ->delimiter(',');
  command.add_option("--train-op", flags.train_op,
                     "With a graph that has gradients: keep those below this node, with their optimizers");
  command.add_option("--initial", flags.initial_file,
                     "With a graph: a TensorFlow checkpoint or .npz that variables begin with");
  command.add_option("--inference-graph", flags.inference_file, "With a graph: the one that predicts");
}

}  // namespace braid::cli
