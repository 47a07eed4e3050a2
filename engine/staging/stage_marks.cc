#include "engine/staging/stage_marks.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/error.h"
#include "engine/ops/op.h"
#include "proto/graph.pb.h"

namespace braid {
namespace {

constexpr const char* kStage = "_stage";
constexpr const char* kFeeds = "_stage_feeds";  // "placeholder=value"

constexpr std::array kErrorCodes = {
    ErrorCode::InvalidArgument, ErrorCode::Unavailable, ErrorCode::DeadlineExceeded,
    ErrorCode::OutOfMemory,     ErrorCode::DeviceError, ErrorCode::DataLoss,
    ErrorCode::Internal,        ErrorCode::Cancelled,   ErrorCode::OutOfRange};

std::vector<std::string> to_names(const std::vector<ErrorCode>& codes) {
  std::vector<std::string> names;
  for (const ErrorCode code : codes) names.emplace_back(error_code_name(code));
  return names;
}

std::vector<ErrorCode> to_codes(const std::vector<std::string>& names) {
  std::vector<ErrorCode> codes;
  for (const std::string& name : names) {
    const auto at = std::find_if(kErrorCodes.begin(), kErrorCodes.end(),
                                 [&](ErrorCode code) { return error_code_name(code) == name; });
    if (at == kErrorCodes.end()) throw InvalidArgument("'" + name + "' is no kind of error");
    codes.push_back(*at);
  }
  return codes;
}

/// One row an option: the same walk writes and reads them.
template <class Visit>
void visit_options(Visit&& visit, StageOptions& o) {
  visit.integer("capacity", o.capacity);
  visit.integer("num_threads", o.num_threads);
  visit.integer("num_clients", o.num_clients);
  visit.millis("timeout_millis", o.timeout);
  visit.policy("on_timeout", o.on_timeout);
  visit.flag("ordered", o.ordered);
  visit.codes("closed_exception_types", o.closed_exception_types);
  visit.codes("ignored_exception_types", o.ignored_exception_types);
  visit.integer("max_ignored_in_a_row", o.max_ignored_in_a_row);
  visit.millis("ignored_backoff_millis", o.ignored_backoff);
  visit.flag("use_stage_subgraph_thread_pool", o.use_stage_subgraph_thread_pool);
  visit.integer("stage_subgraph_thread_pool_id", o.stage_subgraph_thread_pool_id);
  visit.integer("stage_subgraph_stream_id", o.stage_subgraph_stream_id);
}

std::string key(const char* option) { return std::string("_stage_") + option; }

struct Writer {
  AttrMap& attrs;
  void integer(const char* name, int value) { attrs.set(key(name), value); }
  void flag(const char* name, bool value) { attrs.set(key(name), value); }
  void millis(const char* name, std::chrono::milliseconds value) { attrs.set(key(name), value.count()); }
  void policy(const char* name, TimeoutPolicy value) { attrs.set(key(name), timeout_policy_name(value)); }
  void codes(const char* name, const std::vector<ErrorCode>& value) { attrs.set(key(name), to_names(value)); }
};

struct Reader {
  const AttrMap& attrs;
  void integer(const char* name, int& value) {
    value = static_cast<int>(attrs.get<std::int64_t>(key(name), value));
  }
  void flag(const char* name, bool& value) { value = attrs.get<bool>(key(name), value); }
  void millis(const char* name, std::chrono::milliseconds& value) {
    value = std::chrono::milliseconds(attrs.get<std::int64_t>(key(name), value.count()));
  }
  void policy(const char* name, TimeoutPolicy& value) {
    const auto text = attrs.get<std::string>(key(name), std::string(timeout_policy_name(value)));
    const auto known = timeout_policy_from_name(text);
    if (!known) throw InvalidArgument(key(name) + ": '" + text + "' is not ERROR, DROP or WAIT");
    value = *known;
  }
  void codes(const char* name, std::vector<ErrorCode>& value) {
    value = to_codes(attrs.get<std::vector<std::string>>(key(name), to_names(value)));
  }
};

AttrMap to_attrs(StageOptions options, const std::vector<std::string>& feeds) {
  AttrMap attrs;
  attrs.set(kStage, options.name);
  visit_options(Writer{attrs}, options);
  if (!feeds.empty()) attrs.set(kFeeds, feeds);
  return attrs;
}

GraphStage stage_of(const Graph& graph, const Node& node) {
  GraphStage stage;
  stage.options.name = node.attrs.require<std::string>(kStage);
  try {
    visit_options(Reader{node.attrs}, stage.options);
    for (const std::string& feed : node.attrs.get<std::vector<std::string>>(kFeeds, {})) {
      const std::size_t equals = feed.find('=');
      if (equals == std::string::npos)
        throw InvalidArgument(std::string(kFeeds) + ": '" + feed + "' has no '='");
      stage.feeds.emplace_back(graph.parse_value(feed.substr(0, equals)),
                               graph.parse_value(feed.substr(equals + 1)));
    }
  } catch (const InvalidArgument& e) {
    throw InvalidArgument(place_of(node) + ": " + e.message());
  }
  return stage;
}

}  // namespace

Nested<Output> staged(GraphBuilder& builder, const Nested<Output>& features, StageOptions options,
                      const std::vector<std::pair<Output, Output>>& feed_dict) {
  std::set<std::string> taken;
  for (const NodeDef& node : builder.graph().node())
    if (const auto mark = node.attr().find(kStage); mark != node.attr().end()) taken.insert(mark->second.s());
  const std::string wanted = options.name;
  if (wanted == StageOptions{}.name)
    for (int i = 1; taken.contains(options.name); ++i) options.name = wanted + "_" + std::to_string(i);
  if (taken.contains(options.name)) throw InvalidArgument("stage '" + options.name + "' exists already");
  if (features.size() == 0)
    throw InvalidArgument("stage '" + options.name + "': features " + features.to_string() +
                          " hold no tensor, so there is nothing to stage");
  std::vector<std::string> feeds;
  for (const auto& [placeholder, value] : feed_dict) feeds.push_back(placeholder.name() + "=" + value.name());
  const AttrMap attrs = to_attrs(options, feeds);
  std::vector<Output> outputs;
  for (const Output& feature : features.flatten())
    outputs.push_back(builder.op("Identity", {feature}, attrs, options.name));
  return features.with_leaves<Output>(outputs);
}

std::vector<GraphStage> stages_of(const Graph& graph) {
  std::vector<GraphStage> stages;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (node.removed || !node.attrs.has(kStage)) continue;
    if (node.op->name != "Identity")
      throw InvalidArgument(place_of(node) + ": only an Identity can be marked as a value of a stage");
    GraphStage marked = stage_of(graph, node);
    std::size_t s = 0;
    while (s < stages.size() && stages[s].options.name != marked.options.name) ++s;
    if (s == stages.size())
      stages.push_back(std::move(marked));
    else if (stages[s].options != marked.options || stages[s].feeds != marked.feeds)
      throw InvalidArgument(place_of(node) + ": its options differ from those of node '" +
                            graph.node(stages[s].outputs[0].node).name + "' of the same stage '" +
                            marked.options.name + "'");
    stages[s].outputs.push_back({id, 0});
  }
  return stages;
}

}  // namespace braid
