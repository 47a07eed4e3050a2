#include "worker/model/decide_variables.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/init.h"
#include "base/log.h"
#include "engine/ir/op.h"
#include "proto/job.pb.h"
#include "worker/model/graph_outputs.h"
#include "worker/model/patterns.h"
#include "worker/model/tables.h"

namespace braid::worker {
namespace {

class Decider {
 public:
  Decider(const proto::Job& job, Graph& train, Graph* predict, const InitialValues& initial,
          const TrainableVariables& may_train, const std::map<std::string, Tensor>& promoted,
          Problems& problems)
      : job_(job),
        asked_(job.model().graph()),
        train_(train),
        predict_(predict),
        initial_(initial),
        may_train_(may_train),
        promoted_(promoted),
        sparse_("sparse", asked_.sparse()),
        problems_(problems) {}

  DecidedVariables decide() {
    std::set<std::string> tables = find_tables(train_);
    if (predict_) {
      std::set<std::string> read;
      for (const VariableInfo& variable : list_variables(*predict_)) read.insert(variable.name);
      const std::set<std::string> of_predict = find_tables(*predict_);
      std::erase_if(tables,
                    [&](const std::string& t) { return read.contains(t) && !of_predict.contains(t); });
    }
    std::set<std::string> known;
    bool any_matches = false;
    std::vector<std::string> all;
    for (const VariableInfo& variable : list_variables(train_)) {
      known.insert(variable.name);
      all.push_back(variable.name);
      any_matches |= may_train_.allows(variable.name);
      const InitialValue first = first_value(variable);
      set_attributes(train_, variable, first, tables.contains(variable.name));
      if (predict_) copy_attributes(variable.name);
    }
    if (const std::string lacks = initial_.lacking(all, problems_); !lacks.empty()) log_warning("{}", lacks);
    if (all.empty())
      problems_.add("the loss depends on no variable: promote: \".*\" makes constants of floats variables");
    else if (!any_matches)
      problems_.add("model.graph.trainable and frozen leave no variable to train; there are " +
                    quoted_list(all));
    if (predict_) freeze_others(known);
    return std::move(decided_);
  }

 private:
  InitialValue first_value(const VariableInfo& variable) {
    const AttrMap& attrs = train_.node(variable.handle).attrs;
    if (const auto at = promoted_.find(variable.name); at != promoted_.end()) return of_tensor(at->second);
    if (attrs.has("_init_kind") && !initial_.has(variable.name))  // of a graph that Braid has written
      return InitSpec{static_cast<InitKind>(attrs.get<std::int64_t>("_init_kind", 0)),
                      static_cast<float>(attrs.get("_init_a", 0.0)),
                      static_cast<float>(attrs.get("_init_b", 0.0))};
    return initial_.value_of(variable, problems_).value_or(InitSpec{});
  }

  static InitialValue of_tensor(const Tensor& value) {
    if (const auto spec = recognised_init(value)) return *spec;
    return value;
  }

  /// On every handle of the variable.
  void set_attributes(Graph& graph, const VariableInfo& variable, const InitialValue& first, bool is_table) {
    const AttrMap& said = graph.node(variable.handle).attrs;  // where Braid has written the graph
    const bool trains = may_train_.allows(variable.name) && is_floating(variable.dtype) &&
                        (!asked_.trainable().empty() || said.get("_trainable", true));
    const auto* spec = std::get_if<InitSpec>(&first);
    if (!spec) decided_.initial.emplace(variable.name, std::get<Tensor>(first));
    const InitSpec rule = spec ? *spec : InitSpec{};
    const bool sparse = is_table && spec && sparse_.matches_or(variable.name, said.get("_sparse", true));
    for (NodeId id = 0; id < graph.size(); ++id) {
      Node& node = graph.mutable_node(id);
      if (node.removed || node.op->name != "VarHandleOp" || variable_of(graph, {id, 0}).name != variable.name)
        continue;
      node.attrs.set("_trainable", trains);
      node.attrs.set("_sparse", sparse);
      node.attrs.set("_init_kind", static_cast<std::int64_t>(rule.kind));
      node.attrs.set("_init_a", static_cast<double>(rule.a));
      node.attrs.set("_init_b", static_cast<double>(rule.b));
    }
    decided_.found.push_back({variable.name,
                              std::string(dtype_name(variable.dtype)) + variable.shape.to_string(),
                              trains ? "trained" : "not trained", spec ? init_text(*spec) : "values"});
    if (trains && variable.dtype != DType::Float32)
      problems_.add(fmt::format("variable '{}' is {}, and float32 is trained: frozen: \"{}\"", variable.name,
                                dtype_name(variable.dtype), variable.name));
  }

  void copy_attributes(const std::string& name) {
    const auto handles = [&](const Graph& graph) {
      std::vector<NodeId> ids;
      for (NodeId id = 0; id < graph.size(); ++id)
        if (!graph.node(id).removed && graph.node(id).op->name == "VarHandleOp" &&
            variable_of(graph, {id, 0}).name == name)
          ids.push_back(id);
      return ids;
    };
    const NodeId from = handles(train_).front();
    for (const NodeId to : handles(*predict_))
      for (const char* attr : {"_trainable", "_sparse", "_init_kind", "_init_a", "_init_b"})
        predict_->mutable_node(to).attrs.set(attr, *train_.node(from).attrs.find(attr));
  }

  /// Variables that only the prediction reads are in no training step, and in no checkpoint of one: they are
  /// what they begin with.
  void freeze_others(const std::set<std::string>& known) {
    Graph& graph = *predict_;
    for (const VariableInfo& variable : list_variables(graph)) {
      if (known.contains(variable.name)) continue;
      const InitialValue first = initial_.value_of(variable, problems_).value_or(InitSpec{});
      Tensor value = Tensor::zeros(variable.dtype, variable.shape);
      if (const auto* spec = std::get_if<InitSpec>(&first))
        fill_by_rule(*spec, make_rng_key(job_.seed(), variable.name), value);
      else
        value = std::get<Tensor>(first);
      read_constant(graph, variable.name, value);
      decided_.found.push_back({variable.name,
                                std::string(dtype_name(variable.dtype)) + variable.shape.to_string(),
                                "does not reach the loss: it stays as it is", "values"});
    }
  }

  const proto::Job& job_;
  const proto::TrainedGraph& asked_;
  Graph& train_;
  Graph* const predict_;  // where the model predicts otherwise than it trains
  const InitialValues& initial_;
  const TrainableVariables& may_train_;
  const std::map<std::string, Tensor>& promoted_;
  const NamePattern sparse_;
  Problems& problems_;
  DecidedVariables decided_;
};

}  // namespace

DecidedVariables decide_variables(const proto::Job& job, Graph& train, Graph* predict,
                                  const InitialValues& initial, const TrainableVariables& may_train,
                                  const std::map<std::string, Tensor>& promoted, Problems& problems) {
  return Decider(job, train, predict, initial, may_train, promoted, problems).decide();
}

}  // namespace braid::worker
