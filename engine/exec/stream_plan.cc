#include "engine/exec/stream_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <iterator>

#include "base/error.h"
#include "base/init.h"
#include "engine/ir/op.h"
#include "engine/program/stream_rules.h"

namespace braid {
namespace {

constexpr std::string_view kFirstLine = "braid stream plan 1";

template <class T>
T number(std::string_view text, const std::string& place, int base = 10) {
  T value{};
  std::from_chars_result result{};
  if constexpr (std::is_floating_point_v<T>)
    result = std::from_chars(text.data(), text.data() + text.size(), value);
  else
    result = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (result.ec != std::errc{} || result.ptr != text.data() + text.size())
    throw InvalidArgument(place + ": '" + std::string(text) + "' is not a number");
  return value;
}

}  // namespace

StreamOptions StreamPlan::apply(StreamOptions options) const {
  options.policy = policy;
  options.count = streams;
  if (without_ids) options.scopes = Scopes::KeptApart;
  options.costs = std::make_shared<const MeasuredCosts>(costs);
  options.why = why;
  options.warnings = warnings;
  return options;
}

std::string StreamPlan::to_text() const {
  std::string text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "{}\nmade for {:016x}\npolicy {}\nstreams {}\n{}why {}\n", kFirstLine, made_for,
                 stream_policy_name(policy), streams, without_ids ? "without ids\n" : "", why);
  for (const std::string& warning : warnings) fmt::format_to(out, "warning {}\n", warning);
  for (const auto& [name, us] : costs) fmt::format_to(out, "cost {:.3f} {}\n", us, name);
  return text;
}

StreamPlan StreamPlan::from_text(std::string_view text, const std::string& source) {
  StreamPlan plan;
  int line_number = 0;
  bool has_policy = false;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string place = source + ":" + std::to_string(++line_number);
    const auto take = [&](std::string_view key) {
      if (!line.starts_with(key)) return false;
      line.remove_prefix(key.size());
      return true;
    };
    if (line_number == 1) {
      if (line != kFirstLine) throw InvalidArgument(place + ": not a stream plan of this version");
    } else if (take("made for ")) {
      plan.made_for = number<std::uint64_t>(line, place, 16);
    } else if (take("policy ")) {
      const auto policy = stream_policy_from_name(line);
      if (!policy || *policy == StreamPolicy::Auto)
        throw InvalidArgument(place + ": '" + std::string(line) + "' is not a policy that a plan can have");
      plan.policy = *policy;
      has_policy = true;
    } else if (take("streams ")) {
      plan.streams = number<int>(line, place);
    } else if (line == "without ids") {
      plan.without_ids = true;
    } else if (take("why ")) {
      plan.why = line;
    } else if (take("warning ")) {
      plan.warnings.emplace_back(line);
    } else if (take("cost ")) {
      const std::size_t space = std::min(line.find(' '), line.size());
      const double us = number<double>(line.substr(0, space), place);
      plan.costs[std::string(line.substr(std::min(space + 1, line.size())))] = us;
    } else {
      throw InvalidArgument(place + ": '" + std::string(line) + "' is not a line of a stream plan");
    }
  }
  if (!has_policy || plan.streams < 1) throw InvalidArgument(source + ": the stream plan is not complete");
  return plan;
}

std::uint64_t stream_plan_key(const Graph& graph, const CompileRequest& request,
                              const CompileOptions& options) {
  const StreamOptions& streams = options.streams;
  std::string text;
  const auto out = std::back_inserter(text);
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (node.removed) continue;
    fmt::format_to(out, "{} {} {} {}", node.name, node.op->name, node.stream, node.colocate_with);
    for (const ValueRef& input : node.inputs) fmt::format_to(out, " {}:{}", input.node, input.output);
    for (const NodeId control : node.control_inputs) fmt::format_to(out, " ^{}", control);
    text += '\n';
  }
  for (const FeedSpec& feed : request.feeds)
    fmt::format_to(out, "feed {} {}\n", feed.name, feed.shape.to_string());
  fmt::format_to(out, "streams {} {} {} {} {} {} {}\n", streams.count, streams.keep_all_events,
                 streams.grad_follows_forward, streams.forward_propagation, streams.memory_waits_from,
                 static_cast<int>(streams.scopes), streams.scopes_win);
  fmt::format_to(out, "batching {} fusion {} attention {} domain {} in flight {}\n",
                 static_cast<int>(options.batch_siblings), options.fusion,
                 static_cast<int>(options.attention), static_cast<int>(options.domain),
                 options.steps_in_flight);
  const PrecisionOptions& precision = options.precision;
  if (precision.half != DType::Float32)
    fmt::format_to(out, "precision {} {} {}\n", dtype_name(precision.half),
                   fmt::join(precision.keep_ops, " "), precision.keep_nodes);
  if (!options.offload.scope.empty() || options.offload.share > 0)
    fmt::format_to(out, "offload {} {}\n", options.offload.share, fmt::join(options.offload.scope, " "));
  for (int rule = 0; streams.rules && rule < streams.rules->size(); ++rule)
    text += streams.rules->rule(rule).text + "\n";
  return stable_hash(text);
}

}  // namespace braid
