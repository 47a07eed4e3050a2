// A training step of MLPerf's DLRM-v2 on one GPU (models/dlrm_v2.cc): ids, floats and labels are copied to
// the device in each step, from page-locked memory; then lookups, dense layers, loss, backward, the sort of
// the ids and all updates, as one captured graph. The dense layers' updates are Adagrad per element.
//
// Ids are those of the peer (Zipf: v = floor(x) - 1 with density x^-z, or uniform), so that figures can stand
// beside it. Tables begin with zeros, which costs and changes nothing here; kernels with their own values.
// TF32 and BF16 are what a job gets by runtime.precision: the same passes, products and kernels.
// Prints us a step and examples/s (median of rounds), and with --profile the --top largest nodes of a step by
// the device's time, and how much of it overlaps.
//
// usage: gpu_dlrm_v2 [--batches 6912,65536] [--optimizers rowwise,adagrad] [--max-rows 0] [--zipf 0,1.05]
//     [--precisions TF32,BF16] [--streams 1,4] [--steps 20] [--rounds 5] [--profile] [--top 10] [--plan]
//     [--rows train_data.bin] [--learning-rate 4e-3] [--losses] [--measure-products]
// --rows: batches are the first ones of such a file (`braid data mlperf-dlrm`), and --zipf only names them.
// --losses: the loss of each step, from the first on, in a line.
// --plan: what the compiler makes of the steps; needs no GPU.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>
#include <thread>

#include "base/error.h"
#include "bench/gpu/profile.h"
#include "bench/training_step.h"
#include "engine/input/formats/mlperf_dlrm.h"
#include "engine/program/program.h"

namespace braid::bench {
namespace {

struct Options {
  std::string batches = "6912,65536", optimizers = "rowwise", zipf = "0,1.05", streams = "4";
  std::string precisions = "TF32,BF16", rows;
  std::int64_t max_rows = 0;
  int steps = 20, rounds = 5;
  float learning_rate = 4e-3F;
  std::size_t top = 10;
  bool profile = false, no_fusion = false, plan = false, losses = false, measure_products = false;
};

Training training_of(const Options& options, const std::string& optimizer, std::int64_t batch) {
  ModelConfig config;
  config.sparse_tables = true;
  config.columns = {{"dense", Shape{kMlperfDense}}, {"sparse", Shape{kMlperfIds}}, {"label", Shape{}}};
  config.types["sparse"] = DType::Int32;
  for (int c = 0; c < kMlperfColumns; ++c)
    config.fields["sparse"].push_back({.name = "c" + std::to_string(c),
                                       .length = kMlperfHots[static_cast<std::size_t>(c)],
                                       .ids = mlperf_rows(c, options.max_rows),
                                       .filled = false});
  const ModelGraph model = build_model("dlrm_v2", config);
  OptimizerSpec spec{.kind = OptimizerKind::Adagrad,
                     .initial_accumulator = 0,
                     .adagrad_epsilon = 1e-8F,
                     .row_wise = optimizer == "rowwise"};
  if (optimizer == "sgd") spec = {};
  Training made = make_training(model, spec);
  made.request.feeds = {{"dense", DType::Float32, {batch, kMlperfDense}},
                        {"sparse", DType::Int32, {batch, kMlperfIds}},
                        {"label", DType::Float32, {batch}}};
  return made;
}

/// Batch `number` of binary rows, whose ids are cut to the tables.
void read_rows(const Options& options, std::uint64_t number, std::vector<Tensor>& feeds) {
  const std::int64_t count = feeds[2].elements();
  std::vector<MlperfRow> rows(static_cast<std::size_t>(count));
  std::ifstream file(options.rows, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(number) * count * kMlperfRowBytes);
  if (!file.read(reinterpret_cast<char*>(rows.data()), count * kMlperfRowBytes))
    throw InvalidArgument(fmt::format("{} has no {} rows for batch {}", options.rows, count, number));
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::copy_n(rows[r].dense, kMlperfDense, feeds[0].data<float>().data() + r * kMlperfDense);
    std::int32_t* to = feeds[1].data<std::int32_t>().data() + r * kMlperfIds;
    const std::int32_t* from = rows[r].ids;
    for (int c = 0; c < kMlperfColumns; ++c)
      for (std::int64_t k = 0; k < kMlperfHots[static_cast<std::size_t>(c)]; ++k)
        *to++ = static_cast<std::int32_t>(*from++ % mlperf_rows(c, options.max_rows));
    feeds[2].data<float>()[r] = static_cast<float>(rows[r].label);
  }
}

/// One batch in page-locked memory.
std::vector<Tensor> batch_of(const Training& training, const Options& options, double zipf,
                             std::uint64_t seed, Accelerator& device) {
  std::vector<Tensor> feeds;
  for (const FeedSpec& feed : training.request.feeds) {
    const auto bytes = static_cast<std::uint64_t>(feed.shape.elements()) * dtype_size(feed.dtype);
    feeds.emplace_back(feed.dtype, feed.shape, device.allocate_pinned(bytes, "a batch"), Domain::Host);
  }
  if (!options.rows.empty()) {
    read_rows(options, seed - 1, feeds);
    return feeds;
  }
  const std::int64_t rows = feeds[2].elements();
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  for (float& x : feeds[0].data<float>()) x = normal(random);
  for (float& x : feeds[2].data<float>()) x = static_cast<float>(random() % 2);
  const int threads = 12;
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t)
    workers.emplace_back([&, t] {
      std::mt19937_64 own(seed * 1000 + static_cast<std::uint64_t>(t));
      std::uniform_real_distribution<double> uniform;
      for (std::int64_t b = rows * t / threads; b < rows * (t + 1) / threads; ++b) {
        std::int32_t* at = feeds[1].data<std::int32_t>().data() + b * kMlperfIds;
        for (int c = 0; c < kMlperfColumns; ++c) {
          const auto n = static_cast<double>(mlperf_rows(c, options.max_rows));
          for (std::int64_t k = 0; k < kMlperfHots[static_cast<std::size_t>(c)]; ++k) {
            const double u = uniform(own);
            const double v =
                zipf <= 0 ? u * n : std::pow((std::pow(n, 1 - zipf) - 1) * u + 1, 1 / (1 - zipf)) - 1;
            *at++ = static_cast<std::int32_t>(std::clamp(v, 0.0, n - 1));
          }
        }
      }
    });
  for (std::thread& worker : workers) worker.join();
  return feeds;
}

/// Tables and their slots begin with zeros.
bool is_table(const VariableInfo& variable) {
  return variable.name.ends_with("/table") || variable.name.ends_with("/accumulator");
}

void print_plan(const std::string& optimizer, std::int64_t batch, const std::string& precision,
                const Program& program) {
  fmt::print("{} {} batch {}: {} nodes, {:.2f} GiB beside variables\n", optimizer, precision, batch,
             program.ops.size(), static_cast<double>(program.stats.device_arena_bytes) / (1 << 30));
  for (const Note& note : program.notes) fmt::print("  {}: {}\n", note.pass, note.text.substr(0, 300));
}

void measure(const Options& options, const std::string& optimizer, std::int64_t batch,
             const std::vector<double>& skews, int streams, const std::string& precision) {
  const Training training = training_of(options, optimizer, batch);
  CompileOptions compiling;
  compiling.domain = Domain::Device;
  compiling.streams.policy = streams > 1 ? StreamPolicy::Cost : StreamPolicy::None;
  compiling.streams.count = streams;
  compiling.fusion = !options.no_fusion;
  compiling.batch_siblings = BatchSiblings::WithinScopes;
  if (precision == "BF16") compiling.precision.half = DType::BFloat16;
  if (options.plan)
    return print_plan(optimizer, batch, precision, *compile(training.graph, training.request, compiling));
  const std::shared_ptr<Accelerator> device =
      open_cuda({.tf32 = precision != "FP32", .measure_products = options.measure_products});
  TimedSteps steps(training, compiling, device,
                   {.learning_rate = options.learning_rate, .stays_zero = is_table});
  for (const double zipf : skews) {
    std::vector<std::vector<Tensor>> batches;
    for (std::uint64_t seed = 1; seed <= 4; ++seed)
      batches.push_back(batch_of(training, options, zipf, seed, *device));
    steps.run(batches, 8);
    std::vector<double> times;
    for (int round = 0; round < options.rounds; ++round)
      times.push_back(steps.time_us(batches, options.steps));
    std::sort(times.begin(), times.end());
    const double us = times[times.size() / 2];
    fmt::print(
        "{} rows<={} {} zipf {} batch {} streams {}: {:.1f} us/step ({:.1f} to {:.1f}), {:.3f} M examples/s, "
        "loss {:.4f}, {:.1f} GiB\n",
        optimizer, options.max_rows, precision, zipf, batch, streams, us, times.front(), times.back(),
        static_cast<double>(batch) / us, steps.losses().back(),
        static_cast<double>(device->bytes_in_use()) / (1 << 30));
    if (options.losses) fmt::print("  losses {:.6g}\n", fmt::join(steps.losses(), " "));
    std::fflush(stdout);
    if (options.profile) profile(steps, batches, *device, us, options.top);
  }
  if (options.profile)
    for (const Note& note : steps.program().notes)
      fmt::print("  note {}: {}\n", note.pass, note.text.substr(0, 200));
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Training steps of DLRM-v2 on one GPU");
  app.add_option("--batches", options.batches);
  app.add_option("--optimizers", options.optimizers);
  app.add_option("--max-rows", options.max_rows);
  app.add_option("--zipf", options.zipf);
  app.add_option("--streams", options.streams);
  app.add_option("--steps", options.steps);
  app.add_option("--rounds", options.rounds);
  app.add_option("--precisions", options.precisions);
  app.add_option("--rows", options.rows)->check(CLI::ExistingFile);
  app.add_option("--top", options.top);
  app.add_option("--learning-rate", options.learning_rate);
  app.add_flag("--losses", options.losses);
  app.add_flag("--measure-products", options.measure_products);
  app.add_flag("--no-fusion", options.no_fusion);
  app.add_flag("--profile", options.profile);
  app.add_flag("--plan", options.plan);
  CLI11_PARSE(app, argc, argv);
  const auto split = [](const std::string& text) { return CLI::detail::split(text, ','); };
  std::vector<double> skews;
  for (const std::string& zipf : split(options.zipf)) skews.push_back(std::stod(zipf));
  if (!options.plan) fmt::print("{}\n", open_cuda({})->description());
  for (const std::string& optimizer : split(options.optimizers))
    for (const std::string& precision : split(options.precisions))
      for (const std::string& batch : split(options.batches))
        for (const std::string& streams : split(options.streams)) try {
            if (precision != "FP32" && precision != "TF32" && precision != "BF16")
              throw InvalidArgument("no such precision here; FP16 needs the loss scaled, which a job does");
            measure(options, optimizer, std::stoll(batch), skews, std::stoi(streams), precision);
          } catch (const std::exception& error) {
            fmt::print("{} {} {} streams {}: {}\n", optimizer, precision, batch, streams, error.what());
          }
  return 0;
}

}  // namespace
}  // namespace braid::bench

int main(int argc, char** argv) { return braid::bench::run(argc, argv); }
