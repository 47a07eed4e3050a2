// Training on several GPUs with all-reduce over NCCL, a thread and a GPU a rank: the step alone, the step
// with all-reduce, their ratio, and how much of the communication the step does not hide. The model is the
// peer's (torch_ddp.py): 16 layers of 4096 with ReLU, 268 million parameters, at batch 4096 and 1024 a GPU.
//
// Medians of 5 rounds of 20 steps, in which the ranks start together. Not hidden: what the step takes longer
// than alone, as a share of the time in which the comm stream was busy (recorded).
//
// usage: gpu_data_parallel [--gpus N] [--bucket-bytes B]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <barrier>
#include <thread>

#include "comm/nccl/nccl_communicator.h"
#include "comm/rendezvous/in_process.h"
#include "engine/compile/compile.h"
#include "proto/job.pb.h"
#include "tests/gpu/branch_step.h"
#include "worker/strategies/step_services.h"

namespace braid {
namespace {

const BranchCase kCases[] = {{"mlp4096x16", 4096}, {"mlp4096x16", 1024}};
constexpr int kRounds = 5, kSteps = 20;

struct Options {
  int gpus = 2;
  std::int64_t bucket_bytes = 16 << 20;
};

class Rank {
 public:
  Rank(int rank, const Options& options, const std::shared_ptr<comm::RendezvousStore>& store,
       std::barrier<>& together)
      : rank_(rank),
        options_(options),
        together_(together),
        device_(open_cuda({.ordinal = rank})),
        sampler_(rank == 0 ? make_activity_sampler(*device_) : nullptr),
        rendezvous_(comm::make_in_process_rendezvous(store, {"bench", 1})),
        communicator_(comm::make_nccl_communicator({rank, options.gpus, rank, "bench"}, *rendezvous_,
                                                   WaitContext::with_timeout(std::chrono::seconds(60)))) {}

  void run() {
    for (const BranchCase& c : kCases) {
      const double alone = measure(c, nullptr).us;
      proto::Job job;
      job.mutable_strategy()->set_bucket_bytes(options_.bucket_bytes);
      Runtime runtime(branch_runtime(device_, true));
      auto services = std::make_shared<worker::StepServices>();
      services->peer_deadline = std::chrono::seconds(60);
      services->stop = std::make_shared<worker::StopFlag>();
      runtime.services().provide(std::move(services));
      const auto strategy =
          worker::make_allreduce_strategy(job, runtime, {rank_, options_.gpus, communicator_, nullptr});
      const Result with = measure(c, strategy.get(), &runtime);
      if (rank_ == 0)
        fmt::print(
            "{} B={} on {} GPUs: alone {:.0f} us, with all-reduce {:.0f} us, {:.3f}; all-reduce busy {:.0f} "
            "us, of "
            "which not hidden {:.1f}%\n",
            c.model, c.batch, options_.gpus, alone, with.us, alone / with.us, with.communication_us,
            100 * (with.us - alone) / with.communication_us);
      std::fflush(stdout);
    }
    communicator_->barrier(WaitContext::with_timeout(std::chrono::seconds(60)));
  }

 private:
  struct Result {
    double us = 0, communication_us = 0;
  };

  Result measure(const BranchCase& c, worker::Strategy* strategy, Runtime* shared = nullptr) {
    std::unique_ptr<Runtime> own;
    if (!shared) own = std::make_unique<Runtime>(branch_runtime(device_, true));
    Runtime& runtime = shared ? *shared : *own;
    const BranchTraining training = make_branch_training(c, 0, strategy);
    CompileOptions compiling;
    compiling.domain = Domain::Device;
    compiling.streams.count = 1;
    compiling.streams.policy = StreamPolicy::None;
    BranchSteps steps(training, compile(training.graph.graph, training.request, compiling), runtime,
                      strategy);
    steps.run(6);
    std::vector<double> times;
    for (int round = 0; round < kRounds; ++round) {
      together_.arrive_and_wait();
      times.push_back(steps.time(kSteps));
    }
    Result result{median_of(times)};
    if (!strategy) return result;
    // All ranks make as many steps, so the window is as long as they take.
    together_.arrive_and_wait();
    constexpr int kRecorded = 60;
    if (sampler_)
      result.communication_us = record(steps, *sampler_, kRecorded).stream_us["comm"];
    else
      steps.run(kRecorded);
    return result;
  }

  const int rank_;
  const Options& options_;
  std::barrier<>& together_;
  std::shared_ptr<Accelerator> device_;
  std::unique_ptr<ActivitySampler> sampler_;
  std::unique_ptr<comm::Rendezvous> rendezvous_;
  std::shared_ptr<comm::Communicator> communicator_;
};

int main_of(int argc, char** argv) {
  CLI::App app("Step times with all-reduce over NCCL");
  Options options;
  app.add_option("--gpus", options.gpus, "ranks, a GPU each");
  app.add_option("--bucket-bytes", options.bucket_bytes, "of gradients that are reduced together");
  CLI11_PARSE(app, argc, argv);
  worker::register_strategy_ops();
  comm::log_nccl_algorithms();
  auto store = std::make_shared<comm::RendezvousStore>();
  std::barrier<> together(options.gpus);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < options.gpus; ++rank)
    threads.emplace_back([&, rank] {
      try {
        Rank(rank, options, store, together).run();
      } catch (const std::exception& error) {
        fmt::print(stderr, "rank {}: {}\n", rank, error.what());
        std::_Exit(1);
      }
    });
  return 0;
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) { return braid::main_of(argc, argv); }
