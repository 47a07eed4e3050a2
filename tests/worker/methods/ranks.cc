#include "tests/worker/methods/ranks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "comm/local/local_communicator.h"
#include "engine/exec/runtime.h"
#include "engine/input/formats/readers.h"
#include "launch/port_reservation.h"
#include "ps/client/ps_client.h"
#include "ps/server/ps_server.h"
#include "ps/server/server_core.h"
#include "worker/job/homes.h"
#include "worker/job/job.h"
#include "worker/process/stop_signal.h"
#include "worker/run/hooks.h"
#include "worker/run/steps.h"
#include "worker/run/trainer.h"
#include "worker/strategies/home_link.h"
#include "worker/strategies/kept_rows.h"
#include "worker/strategies/step_services.h"
#include "worker/strategies/strategy.h"
#include "worker/watch/monitor.h"

namespace braid::worker {
namespace {

RankRun run_rank(const proto::Job& job, const Peers& peers, const std::shared_ptr<const Table>& rows,
                 RunStart start, const AfterStep& after_step = {}, std::shared_ptr<HomeLink> link = {}) {
  RankRun run;
  RunHooks hooks{.train = rows};
  hooks.step = [&](const StepOutcome& step) {
    run.losses.push_back(step.loss);
    if (after_step) after_step(peers.rank, step.step);
  };
  hooks.ended = [&](const TrainResult&, const VariableStore& store) {
    for (const std::string& name : store.names()) {
      const Tensor value = *store.read(name);
      if (value.dtype() != DType::Float32) continue;
      const auto floats = value.data<float>();
      run.values[name].assign(floats.begin(), floats.end());
    }
  };
  try {
    Runtime runtime(RuntimeOptions{});
    const auto stop = std::make_shared<StopFlag>();
    auto services = std::make_shared<StepServices>();
    services->peer_deadline = std::chrono::seconds(60);
    services->stop = stop;
    runtime.services().provide(std::move(services));
    if (link) runtime.services().provide(std::move(link));
    MonitorOptions watched;
    watched.task = "worker " + std::to_string(peers.rank);
    watched.role = "worker";
    Monitor monitor(watched);
    TrainOptions options;
    options.start = start;
    options.hooks = &hooks;
    train(job, options, peers, runtime, monitor, *stop);
    if (const KeptRows* cache = runtime.services().find<KeptRows>()) run.cache = cache->counts();
  } catch (const Error& error) {
    run.error = error.message();
  }
  return run;
}

}  // namespace

std::string wide_deep_job(int steps) {
  return R"(name: "methods" seed: 3 steps: )" + std::to_string(steps) + R"(
    model { name: "wide_deep" hidden: 16 hidden: 8 embedding_dim: 4 hash_buckets: 30 }
    input { format: NPY train_files: "dense.npy" global_batch_size: 24 shuffle: false }
    optimizer { kind: ADAM learning_rate: 0.01 }
    runtime { device: CPU intra_op_threads: 1 } evaluation { enabled: false }
    strategy { bucket_bytes: 400 })";
}

proto::Job job_with(const std::string& text, const std::vector<std::string>& set) {
  return load_job_text(text, "test", set);
}

std::shared_ptr<const Table> made_rows(int rows) {
  Tensor dense(DType::Float32, Shape{rows, 2}), sparse(DType::Int64, Shape{rows, 2}),
      label(DType::Float32, Shape{rows});
  for (int i = 0; i < rows; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const float x = static_cast<float>((i * 7) % 11) / 5 - 1, y = static_cast<float>((i * 5) % 13) / 6 - 1;
    dense.data<float>()[2 * at] = x;
    dense.data<float>()[2 * at + 1] = y;
    sparse.data<std::int64_t>()[2 * at] = i % 5;
    sparse.data<std::int64_t>()[2 * at + 1] = (i * 3) % 7;
    label.data<float>()[at] = x * y + static_cast<float>(i % 5) * 0.2F > 0.4F ? 1 : 0;
  }
  return table_of_arrays({{"dense", dense}, {"sparse", sparse}, {"label", label}});
}

std::vector<RankRun> run_ranks(const proto::Job& job, int world, std::shared_ptr<const Table> rows,
                               RunStart start) {
  register_strategy_ops();
  std::vector<std::shared_ptr<comm::Communicator>> group;
  for (auto& communicator : comm::make_local_group(world)) group.push_back(std::move(communicator));
  std::vector<RankRun> runs(static_cast<std::size_t>(world));
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < world; ++r)
      threads.emplace_back([&, r, communicator = std::move(group[static_cast<std::size_t>(r)])]() mutable {
        // A rank that fails is gone for the others.
        const Peers peers{r, world, std::exchange(communicator, nullptr), nullptr};
        runs[static_cast<std::size_t>(r)] = run_rank(job, peers, rows, start);
      });
  }
  return runs;
}

ServedRun run_with_servers(const proto::Job& job, int world, int servers, std::shared_ptr<const Table> rows,
                           const AfterStep& after_step) {
  register_strategy_ops();
  ServedRun run;
  run.workers.resize(static_cast<std::size_t>(world));
  const launch::PortReservation ports(2 * servers);
  std::vector<std::unique_ptr<ps::PsServer>> all;
  std::vector<std::string> addresses;
  for (int s = 0; s < servers; ++s) {
    ps::PsServer::Options options;
    options.index = s;
    options.count = servers;
    options.grpc_listen = ports.addresses()[static_cast<std::size_t>(2 * s)];
    options.data_listen = ports.addresses()[static_cast<std::size_t>(2 * s + 1)];
    all.push_back(ps::PsServer::start(options));
    addresses.push_back(all.back()->grpc_address());
  }
  using Communicators = std::vector<std::shared_ptr<comm::Communicator>>;
  const auto make_group = [&](bool needed) {
    Communicators group(static_cast<std::size_t>(world));
    if (needed) std::ranges::move(comm::make_local_group(world), group.begin());
    return group;
  };
  Communicators steps = make_group(has_communicator(job)), homes = make_group(has_homes_of_rows(job, world));
  using Clock = std::chrono::steady_clock;
  Clock::time_point first, last;
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < world; ++r)
      threads.emplace_back([&, r] {
        ps::PsClient::Options options;
        options.servers = addresses;
        options.worker = r;
        options.workers = world;
        options.job = job.name();
        options.incarnation = 1;
        const WaitContext wait = WaitContext::with_timeout(std::chrono::seconds(60));
        const auto rank = static_cast<std::size_t>(r);
        const Peers peers{r, world, std::exchange(steps[rank], nullptr),
                          ps::PsClient::connect(options, wait)};
        std::shared_ptr<HomeLink> link;
        if (homes[rank]) link = std::make_shared<HomeLink>(HomeLink{std::exchange(homes[rank], nullptr)});
        const auto note = [&](int of, std::uint64_t step) {
          if (of == 0) {
            last = Clock::now();
            if (first == Clock::time_point{}) first = last;
          }
          if (after_step) after_step(of, step);
        };
        run.workers[rank] = run_rank(job, peers, rows, RunStart::New, note, std::move(link));
      });
  }
  run.seconds = std::chrono::duration<double>(last - first).count();
  for (const auto& server : all) run.counters.push_back(server->core().counters()->all());
  return run;
}

std::uint64_t counted(const ServedRun& run, const std::string& name) {
  std::uint64_t sum = 0;
  for (const auto& of_server : run.counters)
    if (const auto at = of_server.find(name); at != of_server.end()) sum += at->second;
  return sum;
}

RankRun run_leader(const proto::Job& job, int world, std::shared_ptr<const Table> rows, RunStart start) {
  std::vector<RankRun> runs = run_ranks(job, world, std::move(rows), start);
  for (const RankRun& run : runs) EXPECT_EQ(run.error, "");
  return std::move(runs[0]);
}

void expect_equal(const RankRun& a, const RankRun& b) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (std::size_t i = 0; i < a.losses.size(); ++i) EXPECT_EQ(a.losses[i], b.losses[i]) << "step " << i;
  int compared = 0;
  for (const auto& [name, values] : a.values)
    if (const auto other = b.values.find(name); other != b.values.end()) {
      ++compared;
      EXPECT_EQ(std::memcmp(values.data(), other->second.data(), values.size() * sizeof(float)), 0) << name;
    }
  EXPECT_GT(compared, 4);
}

void expect_near(const RankRun& a, const RankRun& b, double most) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  ASSERT_FALSE(a.losses.empty());
  for (std::size_t i = 0; i < a.losses.size(); ++i)
    EXPECT_NEAR(a.losses[i], b.losses[i], most) << "step " << i;
  int compared = 0;
  for (const auto& [name, values] : a.values)
    if (const auto other = b.values.find(name); other != b.values.end()) {
      ++compared;
      ASSERT_EQ(values.size(), other->second.size()) << name;
      double worst = 0;
      for (std::size_t i = 0; i < values.size(); ++i)
        worst = std::max(worst, std::fabs(double{values[i]} - double{other->second[i]}));
      EXPECT_LE(worst, most) << name;
    }
  EXPECT_GT(compared, 4);
}

}  // namespace braid::worker
