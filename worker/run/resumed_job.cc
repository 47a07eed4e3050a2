#include "worker/run/resumed_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "proto/job.pb.h"

namespace braid::worker {
namespace {

// Names of attributes; what is behind the slash stands in messages.
constexpr const char* kModel = "resumed/model.name";
constexpr const char* kOptimizer = "resumed/optimizer.kind";
constexpr const char* kOrder = "resumed/input's order";

std::string shown(const std::string& attribute) { return attribute.substr(attribute.find('/') + 1); }

std::string change(const std::string& what, const std::string& was, const std::string& is) {
  return fmt::format("{} was {} and is {}", what, was, is);
}

/// "ADAGRAD; ADAM for deep/.*"
std::string optimizer_text(const proto::Optimizer& optimizer) {
  std::string text = proto::Optimizer::Kind_Name(optimizer.kind());
  for (const proto::OptimizerGroup& group : optimizer.group())
    if (group.has_kind())
      text += fmt::format("; {} for {}", proto::Optimizer::Kind_Name(group.kind()), group.match());
  return text;
}

std::string order_text(const proto::Input& input) {
  if (input.has_shuffle() && !input.shuffle()) return "that of the rows";
  if (input.shuffle_buffer() > 0) return fmt::format("shuffled, shuffle_buffer {}", input.shuffle_buffer());
  return "shuffled";
}

/// "a=1 b=2" by names; those that only say where the input is are left out.
std::map<std::string, std::string> fields_of(const std::string& cursor) {
  static const std::set<std::string> kPlace{"ticket", "epoch", "position"};
  std::map<std::string, std::string> fields;
  std::istringstream words(cursor);
  for (std::string word; words >> word;)
    if (const auto at = word.find('='); at != std::string::npos && !kPlace.contains(word.substr(0, at)))
      fields[word.substr(0, at)] = word.substr(at + 1);
  return fields;
}

}  // namespace

std::map<std::string, std::string> resumed_attributes(const proto::Job& job) {
  return {{kModel, job.model().name()},
          {kOptimizer, optimizer_text(job.optimizer())},
          {kResumedSeed, std::to_string(job.seed())},
          {kOrder, order_text(job.input())}};
}

std::vector<std::string> job_changes(const CheckpointMeta& meta, const proto::Job& job) {
  std::vector<std::string> changes;
  for (const auto& [name, is] : resumed_attributes(job))
    if (const auto was = meta.attributes.find(name); was != meta.attributes.end() && was->second != is)
      changes.push_back(change(shown(name), was->second, is));
  return changes;
}

std::vector<std::string> cursor_changes(const std::string& was, const std::string& is, bool of_seed) {
  std::vector<std::string> changes;
  std::map<std::string, std::string> before = fields_of(was), now = fields_of(is);
  if (!of_seed) {
    before.erase("seed");
    now.erase("seed");
  }
  for (const auto& [name, value] : before) {
    const auto at = now.find(name);
    const std::string found = at == now.end() ? "not there" : at->second;
    if (found == value) continue;
    changes.push_back(name == "stream"  // a hash, which tells nobody anything
                          ? "files that are streamed, or settings of their order, are others"
                          : change("the input's " + name, value, found));
  }
  for (const auto& [name, value] : now)
    if (!before.contains(name)) changes.push_back(change("the input's " + name, "not there", value));
  return changes;
}

}  // namespace braid::worker
