#include "engine/staging/stage_marks.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/error.h"
#include "engine/ir/op.h"
#include "proto/graph.pb.h"

namespace braid {
namespace {

constexpr const char* kStage = "_stage";
constexpr const char* kProducer = "_stage_producer";  // of several; absent: 0
constexpr const char* kFeeds = "_stage_feeds";        // "placeholder=value"

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
  visit.millis("timeout_millis", o.timeout_millis);
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
    const auto given = attrs.get<std::int64_t>(key(name), value);
    value = static_cast<int>(given);
    if (value != given) throw InvalidArgument(key(name) + ": " + std::to_string(given) + " is out of range");
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

/// A name for a new stage: the wanted one, or a free one where that is the default.
std::string name_for(const GraphBuilder& builder, const std::string& wanted) {
  std::set<std::string> taken;
  for (const NodeDef& node : builder.graph().node())
    if (const auto mark = node.attr().find(kStage); mark != node.attr().end()) taken.insert(mark->second.s());
  std::string name = wanted;
  if (wanted == StageOptions{}.name)
    for (int i = 1; taken.contains(name); ++i) name = wanted + "_" + std::to_string(i);
  if (taken.contains(name)) throw InvalidArgument("stage '" + name + "' exists already");
  return name;
}

Nested<Output> mark(GraphBuilder& builder, const Nested<Output>& features, const AttrMap& attrs,
                    const std::string& name) {
  if (features.size() == 0)
    throw InvalidArgument("stage '" + name + "': features " + features.to_string() +
                          " hold no tensor, so there is nothing to stage");
  std::vector<Output> outputs;
  for (const Output& feature : features.flatten())
    outputs.push_back(builder.op("Identity", {feature}, attrs, name));
  return features.with_leaves<Output>(outputs);
}

}  // namespace

Nested<Output> staged(GraphBuilder& builder, const Nested<Output>& features, StageOptions options,
                      const std::vector<std::pair<Output, Output>>& feed_dict) {
  options.name = name_for(builder, options.name);
  std::vector<std::string> feeds;
  for (const auto& [placeholder, value] : feed_dict) feeds.push_back(placeholder.name() + "=" + value.name());
  return mark(builder, features, to_attrs(options, feeds), options.name);
}

Nested<Output> prefetch_join(GraphBuilder& builder, const std::vector<Nested<Output>>& features,
                             StageOptions options) {
  options.name = name_for(builder, options.name);
  if (features.empty()) throw InvalidArgument("stage '" + options.name + "': it has no producer");
  for (const Nested<Output>& other : features)
    if (other.to_string() != features[0].to_string())
      throw InvalidArgument("stage '" + options.name + "': joined producers must make one structure, got " +
                            features[0].to_string() + " and " + other.to_string());
  std::vector<Nested<Output>> marked;
  for (std::size_t i = 0; i < features.size(); ++i) {
    AttrMap attrs = to_attrs(options, {});
    if (i > 0) attrs.set(kProducer, static_cast<std::int64_t>(i));
    marked.push_back(mark(builder, features[i], attrs, options.name));
  }
  return marked[0];
}

std::vector<GraphStage> stages_of(const Graph& graph) {
  std::vector<GraphStage> stages;
  std::vector<NodeId> first;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (node.removed || !node.attrs.has(kStage)) continue;
    if (node.op->role != OpRole::Identity)
      throw InvalidArgument(place_of(node) + ": only an Identity can be marked as a value of a stage");
    GraphStage marked = stage_of(graph, node);
    std::size_t s = 0;
    while (s < stages.size() && stages[s].options.name != marked.options.name) ++s;
    if (s == stages.size()) {
      stages.push_back(std::move(marked));
      first.push_back(id);
    } else if (stages[s].options != marked.options || stages[s].feeds != marked.feeds) {
      throw InvalidArgument(place_of(node) + ": its options differ from those of node '" +
                            graph.node(first[s]).name + "' of the same stage '" + marked.options.name + "'");
    }
    const auto producer = node.attrs.get<std::int64_t>(kProducer, 0);
    if (producer < 0 || producer > static_cast<std::int64_t>(stages[s].joined.size()) + 1)
      throw InvalidArgument(place_of(node) + ": " + kProducer + " " + std::to_string(producer) +
                            " is not the next producer of stage '" + stages[s].options.name + "'");
    if (producer > static_cast<std::int64_t>(stages[s].joined.size())) stages[s].joined.emplace_back();
    auto& values =
        producer == 0 ? stages[s].outputs : stages[s].joined[static_cast<std::size_t>(producer - 1)];
    values.push_back({id, 0});
  }
  return stages;
}

}  // namespace braid
