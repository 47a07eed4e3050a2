#include "tests/worker/strategies/hybrid_runs.h"

#include <algorithm>
#include <thread>

#include "comm/communicator.h"
#include "comm/local/local_communicator.h"
#include "engine/builder/graph_builder.h"
#include "engine/compile/compile.h"
#include "engine/exec/instance.h"
#include "engine/ops/common/two_parts.h"
#include "engine/ops/state/variable_init.h"
#include "engine/program/program.h"
#include "tests/worker/strategies/row_communicator.h"
#include "worker/input/step_feeds.h"
#include "worker/job/job.h"
#include "worker/step/collectives_hash.h"
#include "worker/step/next_batch.h"
#include "worker/strategies/hybrid_ops.h"
#include "worker/strategies/step_services.h"
#include "worker/strategies/strategy.h"
#include "worker/strategies/table_service.h"

namespace braid::worker {
namespace {

/// A sum or a mean of the rows, of all or of those whose id is not 0.
Output random_bag(Random& random, GraphBuilder& b, const Output& table, const Output& ids) {
  AttrMap attrs{{"dtype", DType::Float32},
                {"pooling", std::vector<std::string>{"sum", "mean",
                                                     "sqrtn"}[static_cast<std::size_t>(draw(random, 0, 2))]}};
  std::vector<Output> inputs{table, ids};
  if (draw(random, 0, 1) == 1) {
    attrs.set("weighted", true);
    const Output present = b.op("NotEqual", {ids, b.constant(Tensor::scalar<std::int64_t>(0), "filler")});
    inputs.push_back(b.op("Cast", {present}, {{"SrcT", DType::Bool}, {"DstT", DType::Float32}}));
  }
  return b.op("braid.Bag", std::move(inputs), attrs, "bag");
}

class Rank {
 public:
  Rank(const Model& model, const proto::Job& job, const Peers& peers, std::int64_t examples)
      : model_(model), peers_(peers), examples_(examples), runtime_(RuntimeOptions{}) {
    auto services = std::make_shared<StepServices>();
    services->peer_deadline = std::chrono::seconds(60);
    services->stop = std::make_shared<StopFlag>();
    runtime_.services().provide(std::move(services));
    strategy_ = make_strategy(job, runtime_, peers);
    training_ = make_training_graph(model.graph, model.loss);
    for (const Lookup& lookup : model.lookups)
      training_.feeds.push_back(
          {training_.graph.parse_value(lookup.feed), DType::Int64, Shape{examples, lookup.length}});
    strategy_->rewrite_training(training_);
    fill_exchanges();
    if (job.strategy().bucket_bytes() == 16) take_exchanges_apart();
    CompileRequest request;
    for (const Lookup& lookup : model.lookups)
      request.feeds.push_back({lookup.feed, DType::Int64, Shape{examples, lookup.length}});
    const std::vector<FeedSpec> columns = request.feeds;
    add_next_feeds(training_.graph, columns, request);
    std::vector<std::string> feeds;
    for (const FeedSpec& feed : request.feeds) feeds.push_back(feed.name);
    feeds_ = StepFeeds(training_.graph, feeds);
    request.fetches = {training_.graph.value_name(training_.loss)};
    request.targets = training_.targets;
    CompileOptions options;
    options.fusion = job.runtime().precision() == proto::Runtime::BF16;  // as on a device
    if (options.fusion) options.precision.half = DType::BFloat16;
    auto program = compile(training_.graph, request, options);
    collectives_ = collectives_hash(*program, *strategy_);
    find_halves(program->graph);
    instance_ = std::make_unique<Instance>(std::move(program), runtime_);
    if (const auto before = before_first_step(training_.graph, columns)) {
      before_first_ = std::make_unique<Instance>(compile(before->graph, before->request, options), runtime_);
      sends_ahead_ = true;
    }
    for (const VariableInfo& variable : list_variables(training_.graph))
      if (auto value = runtime_.variables().read(variable.name)) {
        initialize_variable(training_.graph.node(variable.handle), job.seed(), *value);
        runtime_.variables().write(variable.name, *value);
      }
    strategy_->start(nullptr, false, 0, wait());
  }

  Outcome run(const Batches& batches, Random random) {
    Outcome outcome;
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      if (draw(random, 0, 3) == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(draw(random, 0, 500)));
      StepRequest request;
      request.params = {
          .step = step, .learning_rate = 0.1F, .grad_scale = strategy_->gradient_scale(), .seed = 1};
      const Batch own = batch(batches[step]), next = batch(batches[std::min(step + 1, kSteps - 1)]);
      if (before_first_) {
        before_first_->run({.params = {}, .feeds = feeds_.of_next(own), .keep_alive = {}}, wait());
        before_first_.reset();
      }
      request.feeds = feeds_.of(own, next);
      strategy_->begin_step(step, wait());
      outcome.losses.push_back(instance_->run(std::move(request), wait()).fetches[0].data<float>()[0]);
      strategy_->end_step(step);
    }
    outcome.collectives = collectives_;
    outcome.sends_ahead = sends_ahead_;
    outcome.taken_apart = taken_apart_;
    outcome.sends_halves = sends_halves_;
    outcome.sends_floats = sends_floats_;
    outcome.sends_distinct = training_.graph.find("from_owners/distinct_rows") != kNoNode;
    for (const std::string& table : model_.tables) {
      outcome.tables.push_back(whole(table));
      outcome.sums_densely |= training_.graph.find(table + "/dense_reads") != kNoNode;
      outcome.sums_hot_densely |= training_.graph.find(table + "/hot/dense_reads") != kNoNode;
    }
    if (auto* service = runtime_.services().find<TableService>())
      for (const TableShard& shard : service->tables()) outcome.hot_rows += std::ssize(shard.hot);
    if (auto* service = runtime_.services().find<TableService>(); service && peers_.leader())
      service->release(wait());
    if (auto* service = runtime_.services().find<TableService>(); service && !peers_.leader())
      service->serve(std::chrono::seconds(60));
    return outcome;
  }

 private:
  /// This rank's part of a step's ids.
  Batch batch(const std::vector<std::vector<std::int64_t>>& ids) const {
    Batch batch;
    for (std::size_t l = 0; l < model_.lookups.size(); ++l) {
      const auto count = static_cast<std::size_t>(examples_ * model_.lookups[l].length);
      const std::int64_t* first = ids[l].data() + static_cast<std::size_t>(peers_.rank) * count;
      batch.tensors.push_back(Tensor::from<std::int64_t>(Shape{examples_, model_.lookups[l].length},
                                                         std::vector<std::int64_t>(first, first + count)));
    }
    return batch;
  }
  /// NaN where nobody sent anything: whoever reads it shows.
  void fill_exchanges() {
    for (NodeId id = 0; id < training_.graph.size(); ++id) {
      Node& node = training_.graph.mutable_node(id);
      if (node.removed || (node.op->name != "braid.AllToAll" && node.op->name != "braid.SumsToOwners"))
        continue;
      node.attrs.set("fill", true);
      node.attrs.set(kFillByte, std::int64_t{255});
    }
  }
  /// As engine/rewrite/split_exchanges.cc does it for devices.
  void take_exchanges_apart() {
    Graph& graph = training_.graph;
    for (NodeId id = 0, nodes = graph.size(); id < nodes; ++id) {
      const TwoParts* const parts = graph.node(id).removed ? nullptr : two_parts(*graph.node(id).op);
      if (!parts) continue;
      const std::string name = graph.node(id).name;
      const auto outputs = static_cast<int>(graph.node(id).outputs.size());
      const auto add = [&](Node part, const std::string& op, const char* suffix) {
        part.op = &OpRegistry::global().require(op);
        part.name = graph.unique_name(name + suffix);
        part.id = kNoNode;
        part.outputs.clear();
        part.known_values.clear();
        return graph.add(std::move(part));
      };
      Node send = graph.node(id), take = graph.node(id);
      send.attrs.set(kKeepsNext, false);
      const NodeId sent = add(std::move(send), parts->send, "/send");
      take.inputs.push_back({sent, 0});
      take.control_inputs.clear();
      const NodeId taken = add(std::move(take), parts->take, "/take");
      for (int output = 0; output < outputs; ++output) graph.replace_uses({id, output}, {taken, output});
      for (NodeId user = 0; user < graph.size(); ++user)
        std::ranges::replace(graph.mutable_node(user).control_inputs, id, sent);
      std::ranges::replace(training_.targets, name, graph.node(taken).name);
      graph.remove(id);
      ++taken_apart_;
    }
  }
  /// What travels between tables' owners and others, in a compiled step.
  void find_halves(const Graph& graph) {
    for (NodeId id = 0; id < graph.size(); ++id) {
      const Node& node = graph.node(id);
      if (node.removed || (node.op->name != "braid.ToOwners" && node.op->name != "braid.FromOwners"))
        continue;
      for (const OutputInfo& output : node.outputs) {
        sends_halves_ += output.dtype == DType::BFloat16 ? 1 : 0;
        sends_floats_ += output.dtype == DType::Float32 ? 1 : 0;
      }
    }
  }
  static WaitContext wait() { return WaitContext::with_timeout(std::chrono::seconds(60)); }

  /// On the leader, with what the others have.
  std::vector<float> whole(const std::string& name) {
    auto* service = runtime_.services().find<TableService>();
    if (service)
      for (std::size_t t = 0; t < service->tables().size(); ++t) {
        const TableShard& shard = service->tables()[t];
        if (shard.name != name || !shard.sharded()) continue;
        if (!peers_.leader()) return {};
        std::vector<std::int64_t> ids;
        for (std::int64_t row = 0; row < shard.rows; ++row) ids.push_back(row);
        std::vector<float> rows(static_cast<std::size_t>(shard.rows * shard.dim));
        service->look_up(static_cast<int>(t), ids, rows.data(), wait());
        return rows;
      }
    const Tensor value = *runtime_.variables().read(name);
    return {value.data<float>().begin(), value.data<float>().end()};
  }

  const Model& model_;
  const Peers peers_;
  const std::int64_t examples_;
  Runtime runtime_;
  std::unique_ptr<Strategy> strategy_;
  TrainingGraph training_;
  StepFeeds feeds_;
  std::unique_ptr<Instance> instance_, before_first_;
  bool sends_ahead_ = false;
  int taken_apart_ = 0;
  int sends_halves_ = 0, sends_floats_ = 0;
  std::uint64_t collectives_ = 0;
};

}  // namespace

Model random_model(Random& random, std::int64_t world) {
  Model model;
  GraphBuilder b;
  std::vector<Output> parts;
  std::int64_t width = 0;
  for (std::int64_t t = draw(random, 1, 3); t > 0; --t) {
    const std::int64_t rows = draw(random, 1, 30), dim = world * draw(random, 1, 3);
    const std::string name = "t" + std::to_string(t);
    const Output table =
        b.variable(name, Shape{rows, dim}, {.init = {InitKind::Uniform, -0.5F, 0.5F}, .sparse = true});
    model.tables.push_back(name);
    for (std::int64_t u = draw(random, 1, 2); u > 0; --u) {
      const Lookup lookup{name + "_ids" + std::to_string(u), rows, draw(random, 1, 3)};
      const Output ids = b.placeholder(lookup.feed, DType::Int64, Shape{-1, lookup.length});
      model.lookups.push_back(lookup);
      if (draw(random, 0, 1) == 1) {
        parts.push_back(random_bag(random, b, table, ids));
        width += dim;
        continue;
      }
      const bool flat = draw(random, 0, 1) == 1;
      const Output rows_read = b.gather(table, flat ? b.reshape(ids, {-1}) : ids);
      parts.push_back(b.reshape(rows_read, {-1, lookup.length * dim}));
      width += lookup.length * dim;
    }
  }
  const Output out = b.dense("top", b.concat(parts, 1), width, 3, true);
  const Output logit = b.dense("logit", out, 3, 1, false);
  model.loss = b.reduce_mean(b.mul(logit, logit)).name();
  model.graph = b.graph();
  return model;
}

Model random_sums(Random& random) {
  constexpr std::int64_t kDim = 24 * 48;  // of so many elements that halves are worth it
  Model model;
  GraphBuilder b;
  std::vector<Output> parts;
  std::int64_t width = 0;
  for (std::int64_t t = draw(random, 2, 5); t > 0; --t) {
    const std::string name = "t" + std::to_string(t);
    const std::int64_t rows = draw(random, 1, 30), dim = kDim;
    const Lookup lookup{name + "_ids", rows, draw(random, 1, 3)};
    const Output ids = b.placeholder(lookup.feed, DType::Int64, Shape{-1, lookup.length});
    const Output table =
        b.variable(name, Shape{rows, dim}, {.init = {InitKind::Uniform, -0.5F, 0.5F}, .sparse = true});
    parts.push_back(
        b.op("braid.Bag", {table, ids}, {{"dtype", DType::Float32}, {"pooling", std::string("sum")}}, "bag"));
    model.lookups.push_back(lookup);
    model.tables.push_back(name);
    width += dim;
  }
  const Output out = b.dense("top", b.concat(parts, 1), width, 16, true);
  const Output logit = b.dense("logit", out, 16, 1, false);
  model.loss = b.reduce_mean(b.mul(logit, logit)).name();
  model.graph = b.graph();
  return model;
}

Model random_gathers(Random& random) {
  Model model;
  GraphBuilder b;
  std::vector<Output> parts;
  std::int64_t width = 0;
  for (std::int64_t c = draw(random, 1, 4); c > 0; --c) {
    const Lookup lookup{"ids" + std::to_string(c), draw(random, 1, 30), draw(random, 1, 3)};
    const Output ids = b.placeholder(lookup.feed, DType::Int64, Shape{-1, lookup.length});
    model.lookups.push_back(lookup);
    for (std::int64_t t = draw(random, 1, 2); t > 0; --t) {
      const std::string name = "t" + std::to_string(c) + "_" + std::to_string(t);
      const std::int64_t dim = draw(random, 1, 3) * draw(random, 1, 3);
      const Output table = b.variable(name, Shape{lookup.rows, dim},
                                      {.init = {InitKind::Uniform, -0.5F, 0.5F}, .sparse = true});
      model.tables.push_back(name);
      const Output rows_read = b.gather(table, draw(random, 0, 1) == 1 ? b.reshape(ids, {-1}) : ids);
      parts.push_back(b.reshape(rows_read, {-1, lookup.length * dim}));
      width += lookup.length * dim;
    }
  }
  const Output out = b.dense("top", b.concat(parts, 1), width, 3, true);
  const Output logit = b.dense("logit", out, 3, 1, false);
  model.loss = b.reduce_mean(b.mul(logit, logit)).name();
  model.graph = b.graph();
  return model;
}

Batches random_batches(Random& random, const Model& model, std::int64_t examples) {
  Batches steps(kSteps);
  for (auto& step : steps)
    for (const Lookup& lookup : model.lookups) {
      auto& ids = step.emplace_back(static_cast<std::size_t>(examples * lookup.length));
      const std::int64_t most = draw(random, 0, 3) == 0 ? 0 : lookup.rows - 1;  // sometimes all are equal
      for (std::int64_t& id : ids) id = draw(random, 0, most);
    }
  return steps;
}

proto::Job job_of(const std::string& optimizer, const std::string& strategy, const std::string& plan) {
  proto::Job job = parse_job("seed: 3 optimizer { kind: " + optimizer +
                                 " learning_rate: 0.1 } strategy { kind: " + strategy +
                                 (plan.empty() ? "" : " hybrid { " + plan + " }") + " }",
                             "test");
  fill_job_defaults(job);
  return job;
}

std::string all_tables(const std::string& plan, const std::string& more) {
  return "table { match: '.*' plan: " + plan + " " + more + " }";
}

Outcome run_alone(const Model& model, const proto::Job& job, int world, const Batches& batches,
                  Random& random) {
  return Rank(model, job, {}, kRowsOfRank * world).run(batches, random);
}

Outcome run_group(const Model& model, const proto::Job& job, int world, const Batches& batches,
                  Random& random, const std::string& card, bool as_devices) {
  std::vector<std::unique_ptr<comm::Communicator>> ranks = comm::make_local_group(world);
  std::vector<Outcome> outcomes(static_cast<std::size_t>(world));
  if (as_devices)
    for (auto& rank : ranks) rank = std::make_unique<RowCommunicator>(std::move(rank));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank, its = Random(random())] {
      Peers peers{.rank = rank,
                  .world = world,
                  .communicator = std::move(ranks[static_cast<std::size_t>(rank)]),
                  .servers = nullptr,
                  .card = card};
      outcomes[static_cast<std::size_t>(rank)] = Rank(model, job, peers, kRowsOfRank).run(batches, its);
    });
  threads.clear();
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.losses, outcomes[0].losses);
    EXPECT_EQ(outcome.collectives, outcomes[0].collectives) << "ranks of a job would refuse each other";
  }
  return outcomes[0];
}

void expect_near(const Outcome& its, const Outcome& local, int world, const std::string& optimizer) {
  if (world == 1) {
    ASSERT_EQ(its.losses, local.losses);
    ASSERT_EQ(its.tables, local.tables);
  }
  for (std::size_t s = 0; s < kSteps; ++s)
    ASSERT_NEAR(its.losses[s], local.losses[s], 1e-5 * (1 + local.losses[s])) << "step " << s;
  for (std::size_t t = 0; t < local.tables.size(); ++t)
    for (std::size_t i = 0; i < local.tables[t].size(); ++i)
      ASSERT_NEAR(its.tables[t][i], local.tables[t][i], optimizer == "SGD" ? 1e-5 : 2e-3);
}

}  // namespace braid::worker
