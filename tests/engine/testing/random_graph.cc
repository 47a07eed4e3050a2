#include "tests/engine/testing/random_graph.h"

#include <algorithm>
#include <cstdlib>
#include <map>

namespace braid::testing {
namespace {

class Maker {
 public:
  Maker(std::uint64_t seed, const RandomGraphOptions& options)
      : random_(seed * 7919 + 17), options_(options), seed_(seed) {}

  RandomGraph make() {
    make_sources();
    const int nodes = 4 + below(options_.nodes);
    for (int i = 0; i < nodes; ++i) {
      const int kind = below(100);
      if (kind < 40) {
        add_value(g().mix(some_values(1, 4), size()));
      } else if (kind < 58) {
        add_change();
      } else if (kind < 63) {
        add_value(g().add("Identity", {any_value()}));
      } else if (kind < 67) {
        add_join();
      } else if (kind < 72) {
        add_value(g().constant({below(100), below(100)}));
      } else if (kind < 80 && options_.lanes) {
        static const char* const kLanes[] = {"test.Pull", "test.Push", "test.Comm"};
        add_value(g().add(kLanes[below(3)], some_values(1, 3), {{"elements", size()}}));
      } else if (options_.variables) {
        add_variable_use();
      }
    }
    choose_results();
    choose_streams();
    return std::move(result_);
  }

 private:
  struct Variable {
    ValueRef handle;
    ValueRef last_writer;
  };

  TestGraph& g() { return result_.g; }
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  std::int64_t size() { return std::int64_t{1} << below(8); }
  ValueRef any_value() { return values_[static_cast<std::size_t>(below(static_cast<int>(values_.size())))]; }

  std::vector<ValueRef> some_values(int least, int most) {
    std::vector<ValueRef> chosen;
    for (int i = least + below(most - least + 1); i > 0; --i) chosen.push_back(any_value());
    return chosen;
  }

  void add_value(ValueRef value) {
    values_.push_back(value);
    nodes_.push_back(value);
    if (below(12) == 0 && nodes_.size() > 1) g().control(any_node(), value);
  }
  ValueRef any_node() {  // an earlier one
    return nodes_[static_cast<std::size_t>(
        below(static_cast<int>(nodes_.size()) - (nodes_.size() > 1 ? 1 : 0)))];
  }

  void make_sources() {
    for (int f = 0; f < 1 + below(2); ++f) {
      const std::string name = "x" + std::to_string(f);
      const std::int64_t elements = size();
      add_value(g().feed(name, elements));
      result_.feeds.push_back({name, DType::Int64, Shape{elements}});
    }
    if (!options_.variables) return;
    for (int v = 0; v < 1 + below(3); ++v)
      variables_.push_back(
          {g().variable("v" + std::to_string(seed_) + "_" + std::to_string(v), 2 + below(12)), {}});
  }

  void add_change() {
    const ValueRef first = any_value();
    const std::int64_t elements = g().graph.info(first).shape.elements();
    std::vector<ValueRef> inputs{first};
    for (const ValueRef& value : values_)
      if (inputs.size() < 3 && below(3) == 0 && g().graph.info(value).shape.elements() == elements)
        inputs.push_back(value);
    add_value(g().add("test.Change", inputs, {{"elements", elements}}));
  }

  void add_join() {
    const ValueRef join = g().add("NoOp", {});
    for (int i = 0; i < 1 + below(3); ++i) g().control(any_node(), join);
    nodes_.push_back(join);
    const ValueRef after = g().mix({any_value()}, size());
    g().control(join, after);
    add_value(after);
  }

  void add_variable_use() {
    Variable& variable = variables_[static_cast<std::size_t>(below(static_cast<int>(variables_.size())))];
    const int kind = below(10);
    if (kind < 4) {
      std::vector<ValueRef> inputs = some_values(1, 3);
      inputs.insert(inputs.begin(), variable.handle);
      const ValueRef update = g().add("test.Update", inputs);
      if (variable.last_writer.valid()) g().control(variable.last_writer, update);
      variable.last_writer = update;
      nodes_.push_back(update);
      result_.targets.push_back(g().graph.node(update.node).name);
    } else {
      const ValueRef read = kind < 8 ? g().read(variable.handle)
                                     : g().add("test.Gather", {variable.handle}, {{"elements", size()}});
      // Half of the reads are unordered, and so come before the writes.
      if (variable.last_writer.valid() && below(2) == 0) g().control(variable.last_writer, read);
      values_.push_back(read);
      nodes_.push_back(read);
      if (below(2) == 0) add_value(g().mix({read, any_value()}, size()));
    }
  }

  void choose_results() {
    for (int i = 0; i < 1 + below(4); ++i) result_.fetches.push_back(g().name(any_value()));
    result_.fetches.push_back(g().name(values_.back()));
  }

  void choose_streams() {
    StreamOptions& streams = result_.options.streams;
    static constexpr StreamPolicy kPolicies[] = {
        StreamPolicy::None, StreamPolicy::User, StreamPolicy::User, StreamPolicy::User,
        StreamPolicy::Cost, StreamPolicy::Full, StreamPolicy::Auto, StreamPolicy::Embedding};
    streams.count = 1 + below(8);
    streams.policy = kPolicies[below(static_cast<int>(std::size(kPolicies)))];
    streams.keep_all_events = below(10) == 0;
    result_.options.steps_in_flight = 1 + below(8) / 2;
    if (seed_ % 2) streams.memory_waits_from = 0;
    const int scoped = below(3) * 40;  // percent
    for (const ValueRef node : nodes_)
      if (below(100) < scoped) g().node(node).stream = below(streams.count);
    result_.options.domain = options_.domain;
    if (options_.on_host > 0)
      for (const ValueRef node : nodes_)
        if (below(100) < options_.on_host) g().node(node).device = "/device:CPU:0";
  }

  std::mt19937 random_;
  const RandomGraphOptions options_;
  const std::uint64_t seed_;
  RandomGraph result_;
  std::vector<ValueRef> values_, nodes_;
  std::vector<Variable> variables_;
};

}  // namespace

RandomGraph make_random_graph(std::uint64_t seed, const RandomGraphOptions& options) {
  return Maker(seed, options).make();
}

int tries(const char* variable, [[maybe_unused]] int usual, [[maybe_unused]] int sanitized) {
  if (const char* wanted = std::getenv(variable)) return std::atoi(wanted);
#ifdef BRAID_SANITIZED
  return sanitized;
#else
  return usual;
#endif
}

}  // namespace braid::testing
