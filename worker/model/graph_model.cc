#include "worker/model/graph_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "engine/autodiff/gradients.h"
#include "engine/import/write_graph.h"
#include "engine/ir/op.h"
#include "proto/job.pb.h"
#include "worker/model/bounded_sizes.h"
#include "worker/model/decide_variables.h"
#include "worker/model/def_graph.h"
#include "worker/model/graph_half.h"
#include "worker/model/graph_outputs.h"
#include "worker/model/initial_values.h"
#include "worker/model/kept_gradients.h"
#include "worker/model/onnx_file.h"
#include "worker/model/patterns.h"
#include "worker/model/promote.h"
#include "worker/model/tables.h"
#include "worker/model/towers.h"
#include "worker/model/trainable.h"
#include "worker/model/updates.h"

namespace braid::worker {
namespace {

class GraphModelBuilder {
 public:
  GraphModelBuilder(const proto::Job& job, const std::vector<InputColumn>& columns)
      : job_(job),
        asked_(job.model().graph()),
        columns_(columns),
        problems_("model.graph '" + asked_.file() + "'"),
        promote_("promote", asked_.promote()) {}

  ModelGraph build() {
    original_ = read_model_file(asked_.file());
    initial_.emplace(asked_, original_, job_.seed());
    may_train_.emplace(asked_, original_.facts);
    train_.file = original_;
    read_inference();
    feed();
    choose_roots();
    import_half(train_, feeds_.used_columns(), problems_);
    if (predict_) import_half(*predict_, feeds_.used_columns(), problems_);
    problems_.refuse();
    shape_graph(train_);
    if (predict_) shape_graph(*predict_);
    add_loss();
    DecidedVariables decided = decide_variables(job_, train_.graph, predict_ ? &predict_->graph : nullptr,
                                                *initial_, *may_train_, promoted_, problems_);
    initial_tensors_ = std::move(decided.initial);
    report_.variables = std::move(decided.found);
    add_outputs();
    try_gradients();
    problems_.refuse();
    return finish();
  }

  GraphModelReport take_report() { return std::move(report_); }

 private:
  bool keeps() const { return asked_.gradients() == proto::TrainedGraph::KEEP; }
  std::string prediction_name() const {
    return asked_.prediction().empty() ? asked_.attach().prediction() : asked_.prediction();
  }
  std::string attached_to() const {
    return asked_.attach().prediction().empty() ? asked_.prediction() : asked_.attach().prediction();
  }
  GraphHalf& predicting() { return predict_ ? *predict_ : train_; }

  // ---- names

  void read_inference() {
    const bool differs =
        std::any_of(asked_.feeds().begin(), asked_.feeds().end(),
                    [](const proto::GraphFeed& f) { return !f.eval().empty() && f.eval() != f.constant(); });
    if (!asked_.inference_file().empty())
      predict_.emplace(GraphHalf{read_model_file(asked_.inference_file()), {}, {}});
    else if (original_.trains && !prediction_name().empty())
      predict_.emplace(GraphHalf{read_model_file(asked_.file(), OnnxUse::Inference), {}, {}});
    else if (differs && !prediction_name().empty())
      predict_.emplace(GraphHalf{original_, {}, {}});
    if (!predict_) return;
    for (const std::string& name : original_.statistics) make_statistic(predict_->file, name, {});
  }

  std::string label_column() const {
    if (!asked_.label().empty()) return asked_.label();
    return asked_.attach().label().empty() ? "label" : asked_.attach().label();
  }
  const InputColumn* find_column(const std::string& name) const {
    const auto at =
        std::find_if(columns_.begin(), columns_.end(), [&](const InputColumn& c) { return c.name == name; });
    return at == columns_.end() ? nullptr : &*at;
  }

  /// Before anything is renamed: what must be computed, by the names of the job.
  void feed() {
    std::vector<std::string> wanted, wanted_to_predict;
    const auto want = [&](const ModelFile& file, const std::string& name, std::vector<std::string>& to) {
      if (const auto found = name.empty() ? std::nullopt : file.value_of(name)) to.push_back(*found);
    };
    want(train_.file, asked_.loss(), wanted);
    if (asked_.has_attach()) want(train_.file, attached_to(), wanted);
    if (keeps()) want(train_.file, asked_.train_op(), wanted);
    want(predicting().file, prediction_name(), predict_ ? wanted_to_predict : wanted);
    feeds_ = choose_feeds(asked_, columns_, train_.file, wanted, predict_ ? &predict_->file : nullptr,
                          wanted_to_predict, problems_);
    if (asked_.has_attach()) {
      const std::string label = label_column();
      if (find_column(label))
        feeds_.further.insert(label);
      else
        problems_.add("model.graph.attach.label: the data has no column '" + label + "'");
    }
    for (GraphHalf* half : {&train_, predict_ ? &*predict_ : nullptr}) {
      if (!half) continue;
      reserve_names(half->file, output_names());
      put_feeds(half->file, feeds_, columns_, half != &train_, predict_.has_value(), problems_);
    }
    for (const auto& [of, column] : feeds_.columns)
      report_.feeds.push_back("'" + of + "' <- column '" + column + "'");
    for (const auto& [of, constant] : feeds_.constants)
      report_.feeds.push_back(
          "'" + of + "' <- " + constant.training +
          (constant.evaluation == constant.training ? "" : ", in evaluations " + constant.evaluation));
  }

  void choose_roots() {
    if (asked_.has_attach())
      loss_ = value_for(train_.file, "attach.prediction", attached_to(), problems_);
    else
      loss_ = value_for(train_.file, "loss", asked_.loss(), problems_);
    if (!prediction_name().empty())
      prediction_ = value_for(predicting().file, "prediction", prediction_name(), problems_);
    if (job_.strategy().kind() == proto::Strategy::MIRRORED && problems_.none()) join();
    train_.roots.push_back(loss_);
    if (!prediction_name().empty()) predicting().roots.push_back(prediction_);
    std::set<std::string> reached;  // by the loss
    const NodeIndex index(train_.file.graph);
    for (const NodeDef* node : index.above({loss_}))
      if (is_variable(*node)) reached.insert(variable_name(*node));
    const auto trained = [&](const std::string& name) {
      return reached.contains(name) && may_train(name) && is_float_variable(index, name);
    };
    if (keeps()) keep_gradients(trained);
    updates_ = choose_updates(asked_, train_.file, train_.roots, trained, problems_);
    // Further towers' are what other replicas do.
    if (towers_ > 0)
      std::erase_if(updates_, [&](const std::string& update) { return gpu_of(*index.find(update)) > 0; });
    train_.roots.insert(train_.roots.end(), updates_.begin(), updates_.end());
    const std::vector<std::string> columns = feeds_.used_columns();
    check_all_fed(train_.file, train_.roots, columns, problems_);
    if (predict_) check_all_fed(predict_->file, predict_->roots, columns, problems_);
  }

  /// Towers of the graph become replicas.
  void join() {
    if (keeps() || asked_.has_attach()) return;
    std::string none;
    const JoinedTowers towers = join_towers(train_.file.graph, loss_, predict_ ? none : prediction_);
    if (!towers.why_not.empty())
      log_warning(
          "model.graph '{}': nodes ask for several GPUs, but are no towers of one model, as {}: each replica "
          "runs all of them",
          asked_.file(), towers.why_not);
    towers_ = towers.count;
    if (towers_ == 0) return;
    log_info("model.graph '{}': {} towers, which are replicas now", asked_.file(), towers_);
    std::string loss = value_for(train_.file, "loss", asked_.loss(), problems_);
    if (predict_) join_towers(predict_->file.graph, loss, prediction_);
  }

  void keep_gradients(const std::function<bool(const std::string&)>& trained) {
    const auto op = train_.file.value_of(asked_.train_op());
    if (!op) {
      value_for(train_.file, "train_op", asked_.train_op(), problems_);  // which says so
      return;
    }
    kept_ = find_kept_gradients(train_.file, parse_value_name(*op).node, *initial_,
                                job_.optimizer().learning_rate(), trained, problems_);
    for (const GivenGradient& given : kept_) {
      train_.roots.push_back(given.values);
      if (!given.indices.empty()) train_.roots.push_back(given.indices);
    }
  }

  bool may_train(const std::string& name) const { return may_train_->allows(name); }

  // ---- the graphs

  void shape_graph(GraphHalf& half) {
    promote(half);
    const std::vector<NodeId> left = bound_sizes(half.graph, half.roots);
    gather_from_variables(half.graph);
    std::set<std::string> roots;
    for (const std::string& root : half.roots) roots.insert(parse_value_name(root).node);
    for (const std::string& column : feeds_.used_columns()) roots.insert(column);
    remove_unused(half.graph, roots);
    refuse_unknown_sizes(half.graph, left, keeps(), problems_);
  }

  /// Constants that are to be trained become variables of their names.
  void promote(GraphHalf& half) {
    const auto chosen = [&](const std::string& name) {
      if (promote_.is_set() && promote_.matches(name)) return true;
      return half.file.initializers && half.file.initializers->contains(name);
    };
    std::map<std::string, Tensor> values = promote_constants(half.graph, chosen);
    const bool asked_none =
        promote_.is_set() && std::none_of(values.begin(), values.end(),
                                          [&](const auto& one) { return promote_.matches(one.first); });
    promoted_.merge(values);
    if (&half == &train_ && asked_none)
      problems_.add("model.graph.promote '" + asked_.promote() + "' matches no constant that the loss needs");
  }

  // ---- the loss

  void add_loss() {
    Graph& graph = train_.graph;
    ValueRef loss = graph.parse_value(loss_);
    if (asked_.has_attach()) {
      loss = attach_loss(graph, asked_.attach().kind(), loss, graph.parse_value(label_column()));
    }
    loss_ = graph.value_name(scalar_loss(graph, loss));
  }

  // ---- the results

  /// What the job and the loss say of the prediction, also where the graph that predicts is another one.
  SaidOfPrediction said_of_prediction() const {
    using proto::Evaluation;
    const auto asked = job_.evaluation().metric();
    if (asked == Evaluation::RMSE || asked == Evaluation::MAE) return SaidOfPrediction::IsValue;
    const InputColumn* column = find_column(label_column());
    const bool several = column && column->row.is_static() && column->row.elements() != 1;
    const Graph& predicts = predict_ ? predict_->graph : train_.graph;
    return said_by_loss(train_.graph, train_.graph.parse_value(loss_), predicts,
                        predicts.parse_value(prediction_), label_column(), several);
  }

  void add_outputs() {
    if (prediction_.empty()) return;
    Graph& graph = predicting().graph;
    const InputColumn* label = find_column(label_column());
    const PredictedValue predicted =
        predicted_value(graph, graph.parse_value(prediction_),
                        asked_.has_attach() ? &asked_.attach() : nullptr, label, said_of_prediction());
    outputs_ = add_output_nodes(graph, predicted);
    if (!label) return;
    const bool classes = predicted.kind == Prediction::Classes;
    const bool integers = label->dtype == DType::Int64;
    if (classes ? integers || predicted.label_has_shares : !integers || label->row.rank() == 0) return;
    problems_.add(
        fmt::format("column '{}' has {} {}, and '{}' predicts {}: the label must be a column of kind {}",
                    label->name, dtype_name(label->dtype), label->row.to_string(), prediction_name(),
                    classes ? "classes" : "a probability or a value",
                    classes ? "CLASS, or a share of each class" : "LABEL or NUMERIC"));
  }

  std::set<std::string> updated_variables() const {
    std::set<std::string> names;
    const Graph& graph = train_.graph;
    for (const std::string& update : updates_) {
      const NodeId id = graph.find(update);
      if (id == kNoNode || graph.node(id).inputs.empty()) continue;
      const ValueRef target = graph.node(id).inputs[0];
      if (graph.info(target).dtype == DType::Resource) names.insert(variable_of(graph, target).name);
    }
    return names;
  }

  /// What differentiating says is told with the rest.
  void try_gradients() {
    std::set<std::string> reached, by_rows;
    if (keeps()) {
      for (const GivenGradient& given : kept_) {
        reached.insert(given.variable);
        if (!given.indices.empty()) by_rows.insert(given.variable);
      }
    } else {
      try {
        Graph graph = train_.graph;
        for (const VariableGradient& gradient : add_gradients(graph, graph.parse_value(loss_))) {
          reached.insert(gradient.variable.name);
          if (gradient.slices) by_rows.insert(gradient.variable.name);
        }
        if (reached.empty() && problems_.none())
          problems_.add("the loss depends on no variable that is trained");
      } catch (const InvalidArgument& error) {
        problems_.add(error.message() +
                      "\n  gradients: KEEP with train_op trains with the gradients of the program "
                      "that wrote the graph, where the file has them");
        return;
      }
    }
    const std::set<std::string> updated = updated_variables();
    for (GraphModelReport::Variable& variable : report_.variables) {
      if (updated.contains(variable.name)) variable.role = "updated in each step";
      if (variable.role != "trained") continue;
      if (by_rows.contains(variable.name)) variable.role = "trained by rows";
      if (!reached.contains(variable.name)) variable.role = "does not reach the loss: it stays as it is";
    }
  }

  /// What has been replaced goes.
  void clean_up(GraphHalf& half, bool predicts, bool trains) {
    std::set<std::string> roots(updates_.begin(), updates_.end());
    if (trains) roots.insert(parse_value_name(loss_).node);
    for (const GivenGradient& given : kept_)
      for (const std::string* value : {&given.values, &given.indices})
        roots.insert(parse_value_name(*value).node);
    if (predicts)
      for (const ModelOutput& output : outputs_.outputs) roots.insert(output.name);
    for (const std::string& column : feeds_.used_columns()) roots.insert(column);
    remove_unused(half.graph, roots);
  }

  /// A program that was written to be served normalises by what it has learned, which looks like any formula.
  void warn_of_statistics() const {
    if (!updates_.empty() || keeps()) return;
    const auto found = std::find_if(
        report_.variables.begin(), report_.variables.end(), [](const GraphModelReport::Variable& variable) {
          return variable.role == "not trained" && variable.name.find("moving_variance") != std::string::npos;
        });
    if (found == report_.variables.end()) return;
    log_warning(
        "model.graph '{}': the loss reads '{}', and nothing updates it: the graph was exported to be served, "
        "and "
        "batch normalisation and dropout are as in evaluations. Export the function that trains",
        asked_.file(), found->name);
  }

  ModelGraph finish() {
    warn_of_statistics();
    clean_up(train_, !predict_, true);
    if (predict_) clean_up(*predict_, true, false);
    ModelGraph model;
    model.graph = std::make_unique<GraphDef>(to_graph_def(train_.graph));
    if (predict_) model.inference = std::make_unique<GraphDef>(to_graph_def(predict_->graph));
    model.updates = updates_;
    model.loss = loss_;
    model.towers = towers_;
    model.columns = feeds_.used_columns();
    model.gradients = std::move(kept_);
    model.initial = std::move(initial_tensors_);
    model.prediction = outputs_.prediction;
    model.predicts = outputs_.kind;
    model.outputs = outputs_.outputs;
    if (find_column(label_column())) model.label = label_column();
    report_.nodes_in_file = original_.graph.node_size();
    report_.nodes = model.graph->node_size();
    report_.updates = updates_;
    return model;
  }

  const proto::Job& job_;
  const proto::TrainedGraph& asked_;
  const std::vector<InputColumn>& columns_;
  Problems problems_;
  const NamePattern promote_;
  ModelFile original_;
  std::optional<InitialValues> initial_;
  std::optional<TrainableVariables> may_train_;
  GraphHalf train_;
  std::optional<GraphHalf> predict_;  // where the model predicts otherwise than it trains
  GraphFeeds feeds_;
  std::string loss_, prediction_;
  int towers_ = 0;
  std::vector<GivenGradient> kept_;
  std::vector<std::string> updates_;
  std::map<std::string, Tensor> promoted_, initial_tensors_;
  GraphOutputs outputs_;
  GraphModelReport report_;
};

}  // namespace

ModelGraph build_graph_model(const proto::Job& job, const std::vector<InputColumn>& columns,
                             GraphModelReport* report) {
  GraphModelBuilder builder(job, columns);
  ModelGraph model = builder.build();
  if (report) *report = builder.take_report();
  return model;
}

}  // namespace braid::worker
