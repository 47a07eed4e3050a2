#include "engine/staging/staged_step.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "engine/staging/graph_stage.h"

namespace braid {

StagedStep::StagedStep(const Graph& graph, const std::vector<std::string>& fetches,
                       std::vector<std::string> targets, std::set<std::string> records,
                       CompileOptions compile, Runtime& runtime)
    : graph_(graph),
      targets_(std::move(targets)),
      records_(std::move(records)),
      compile_(std::move(compile)),
      runtime_(runtime) {
  for (const std::string& name : fetches) fetches_.push_back(graph.parse_value(name));
}

StepResult StagedStep::run(const StepParams& params, TextNodes::Known known, const WaitContext& wait) {
  if (!programs_) {
    std::vector<ValueRef> given;
    for (const auto& [value, tensor] : known) given.push_back(value);
    text_ = std::make_unique<const TextNodes>(graph_, fetches_, given);
  }
  if (!text_->empty())
    for (auto& [value, tensor] : known) tensor = on_host(tensor, runtime_.device());
  const std::vector<ValueRef> missing = text_->advance(known);
  if (!programs_) {
    std::set<ValueRef> wanted(missing.begin(), missing.end());
    for (const ValueRef value : fetches_)
      if (!text_->makes(value) && !known.contains(value)) wanted.insert(value);
    computed_.assign(wanted.begin(), wanted.end());
    std::vector<ValueRef> given;
    for (const auto& [value, tensor] : known) given.push_back(value);
    std::vector<NodeId> effects;
    for (const std::string& name : targets_) effects.push_back(node_named(graph_, name));
    program_feeds_ = part_above(graph_, computed_, effects, given).taken;
    add_siblings(graph_, program_feeds_);
    std::erase_if(program_feeds_, [&](ValueRef value) { return !known.contains(value); });
    std::vector<std::string> names;
    for (const ValueRef value : computed_) names.push_back(graph_.value_name(value));
    programs_ = std::make_unique<ProgramCache>(graph_, names, targets_, compile_, runtime_);
  }
  StepRequest request;
  request.params = params;
  std::vector<FeedSpec> specs;
  for (const ValueRef value : program_feeds_) {
    const Tensor& tensor = known.at(value);
    specs.push_back({graph_.value_name(value), tensor.dtype(), tensor.shape()});
    request.feeds.push_back(tensor);
  }
  StepResult result;
  result.step = params.step;
  if (!computed_.empty() || !targets_.empty())
    result = programs_->instance(specs)->run(std::move(request), wait);
  for (std::size_t i = 0; i < computed_.size(); ++i) known[computed_[i]] = std::move(result.fetches[i]);
  if (const auto late = text_->advance(known); !late.empty())
    throw InvalidArgument("'" + graph_.value_name(late[0]) +
                          "' depends on text that the step makes of what it computes: fetch one of them");
  result.fetches.clear();
  for (const ValueRef value : fetches_) result.fetches.push_back(on_host(known.at(value), runtime_.device()));
  return result;
}

void StagedStep::check_fed(const SubgraphRunner::Values& feeds) {
  std::set<ValueRef> now;
  for (const auto& [name, value] : feeds) now.insert(graph_.parse_value(name));
  if (fed_ && now == *fed_) return;
  for (const auto& [name, value] : feeds)
    if (records_.contains(name))
      throw InvalidArgument("'" + name + "' comes with records: a step cannot be fed with it");
  if (!fed_) {
    fed_ = now;
    return;
  }
  std::vector<ValueRef> differing;
  std::set_symmetric_difference(now.begin(), now.end(), fed_->begin(), fed_->end(),
                                std::back_inserter(differing));
  throw InvalidArgument("'" + graph_.value_name(differing[0]) +
                        "' must be fed in all steps of a session or in none");
}

}  // namespace braid
