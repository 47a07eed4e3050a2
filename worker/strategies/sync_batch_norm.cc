#include "worker/strategies/sync_batch_norm.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "comm/communicator.h"
#include "worker/strategies/exchange_op.h"
#include "worker/strategies/kernel_scratch.h"
#include "worker/strategies/step_services.h"

namespace braid::worker {
namespace {

constexpr const char* kForward = "FusedBatchNorm";
constexpr const char* kBackward = "FusedBatchNormGrad";
constexpr const char* kSixOutputs = "six_outputs";  // of FusedBatchNormV3, whose last one is empty
constexpr std::int64_t kBlocks = 64;

/// x as [outer, channels, inner], in blocks of outer rows.
struct Channels {
  explicit Channels(const PrepareContext& c, const Shape& x) {
    if (c.attr("data_format", std::string("NHWC")) == "NCHW") {
      outer = x[0];
      channels = x[1];
      inner = x[2] * x[3];
    } else {
      outer = x[0] * x[1] * x[2];
      channels = x[3];
    }
    rows = std::max<std::int64_t>((outer + kBlocks - 1) / kBlocks, 1);
  }
  std::int64_t blocks() const { return (outer + rows - 1) / rows; }
  double count() const { return static_cast<double>(outer * inner); }

  /// f(index, channel) of the outer rows of a block.
  template <class F>
  void each(std::int64_t block, const F& f) const {
    for (std::int64_t o = block * rows, end = std::min(o + rows, outer); o < end; ++o)
      for (std::int64_t ch = 0; ch < channels; ++ch)
        for (std::int64_t i = 0; i < inner; ++i) f((o * channels + ch) * inner + i, ch);
  }
  template <class F>
  void all(ThreadPool& pool, const F& f) const {
    pool.parallel_for(blocks(), [&](std::int64_t block) { each(block, f); });
  }
  /// sums[s * channels + ch] = sum of f(index, channel, s). `parts`: width * channels of each block.
  template <class F>
  void add_up(ThreadPool& pool, int width, double* parts, double* sums, const F& f) const {
    const std::int64_t size = width * channels;
    pool.parallel_for(blocks(), [&](std::int64_t block) {
      double* const part = parts + block * size;
      std::fill_n(part, size, 0.0);
      for (int s = 0; s < width; ++s)
        each(block, [&](std::int64_t at, std::int64_t ch) { part[s * channels + ch] += f(at, ch, s); });
    });
    std::fill_n(sums, size, 0.0);
    for (std::int64_t block = 0; block < blocks(); ++block)
      for (std::int64_t k = 0; k < size; ++k) sums[k] += parts[block * size + k];
  }

  std::int64_t outer = 0, channels = 0, inner = 1, rows = 1;
};

void require_float(const PrepareContext& c) {
  if (c.inputs[0].dtype != DType::Float32) c.fail("strategy.sync_batch_norm is for float32");
}

PreparedKernel prepare_forward(const PrepareContext& c) {
  auto& communicator = require_service<comm::Communicator>(c, "communicator");
  const auto deadline = require_service<StepServices>(c, "worker").peer_deadline;
  require_float(c);
  const Channels l(c, c.inputs[0].shape);
  const double epsilon = c.attr("epsilon", 1e-4), factor = c.attr("exponential_avg_factor", 1.0);
  KernelScratch scratch;
  const std::size_t mean_at = scratch.add<double>(l.channels + 1),
                    variance_at = scratch.add<double>(l.channels),
                    parts_at = scratch.add<double>(l.blocks() * l.channels);
  PreparedKernel kernel;
  kernel.scratch_bytes = scratch.bytes();
  kernel.run = [=, &communicator, pool = &c.pool](const KernelArgs& a) {
    const WaitContext wait = a.wait->at_most(deadline);
    const float* const x = a.in<float>(0);
    auto *const mean = KernelScratch::array<double>(a, mean_at),
                *const variance = KernelScratch::array<double>(a, variance_at),
                *const parts = KernelScratch::array<double>(a, parts_at);
    const auto reduce = [&](double* sums, std::int64_t count) {
      communicator.all_reduce(sums, sums, count, DType::Float64, comm::ReduceOp::Sum, a.stream, wait);
    };
    l.add_up(*pool, 1, parts, mean, [&](std::int64_t at, std::int64_t, int) { return double{x[at]}; });
    mean[l.channels] = l.count();
    reduce(mean, l.channels + 1);
    const double n = mean[l.channels];
    for (std::int64_t ch = 0; ch < l.channels; ++ch) mean[ch] = n == 0 ? 0 : mean[ch] / n;
    l.add_up(*pool, 1, parts, variance, [&](std::int64_t at, std::int64_t ch, int) {
      const double d = double{x[at]} - mean[ch];
      return d * d;
    });
    reduce(variance, l.channels);
    const double bessel = n > 1 ? n / (n - 1) : 1;
    for (std::int64_t ch = 0; ch < l.channels; ++ch) {
      variance[ch] = n == 0 ? 0 : variance[ch] / n;
      const auto blend = [&](int input, double fresh) {
        return factor == 1.0
                   ? static_cast<float>(fresh)
                   : static_cast<float>((1 - factor) * double{a.in<float>(input)[ch]} + factor * fresh);
      };
      a.out<float>(1)[ch] = blend(3, mean[ch]);
      a.out<float>(2)[ch] = blend(4, variance[ch] * bessel);
      a.out<float>(3)[ch] = static_cast<float>(mean[ch]);
      a.out<float>(4)[ch] = static_cast<float>(variance[ch]);
      // y = x slope + shift
      const double slope = double{a.in<float>(1)[ch]} / std::sqrt(variance[ch] + epsilon);
      variance[ch] = double{a.in<float>(2)[ch]} - mean[ch] * slope;
      mean[ch] = slope;
    }
    float* const y = a.out<float>(0);
    l.all(*pool, [&](std::int64_t at, std::int64_t ch) {
      y[at] = static_cast<float>(double{x[at]} * mean[ch] + variance[ch]);
    });
  };
  return kernel;
}

PreparedKernel prepare_backward(const PrepareContext& c) {
  auto& communicator = require_service<comm::Communicator>(c, "communicator");
  const auto deadline = require_service<StepServices>(c, "worker").peer_deadline;
  require_float(c);
  const Channels l(c, c.inputs[1].shape);
  const double epsilon = c.attr("epsilon", 1e-4);
  KernelScratch scratch;
  const std::size_t sums_at = scratch.add<double>(2 * l.channels + 1),
                    slope_at = scratch.add<double>(l.channels),
                    parts_at = scratch.add<double>(l.blocks() * 2 * l.channels);
  PreparedKernel kernel;
  kernel.scratch_bytes = scratch.bytes();
  kernel.run = [=, &communicator, pool = &c.pool](const KernelArgs& a) {
    const float *const dy = a.in<float>(0), *const x = a.in<float>(1), *const mean = a.in<float>(3);
    auto *const sums = KernelScratch::array<double>(a, sums_at), *const slope = KernelScratch::array<double>(
                                                                     a, slope_at);
    const auto centred = [&](std::int64_t at, std::int64_t ch) { return double{x[at]} - double{mean[ch]}; };
    l.add_up(*pool, 2, KernelScratch::array<double>(a, parts_at), sums,
             [&](std::int64_t at, std::int64_t ch, int s) {
               return s == 0 ? double{dy[at]} : double{dy[at]} * centred(at, ch);
             });
    double *const level = sums, *const tilt = sums + l.channels;
    for (std::int64_t ch = 0; ch < l.channels; ++ch) {
      const double v = double{a.in<float>(4)[ch]} + epsilon;
      slope[ch] = double{a.in<float>(2)[ch]} / std::sqrt(v);
      a.out<float>(1)[ch] = static_cast<float>(tilt[ch] / std::sqrt(v));
      a.out<float>(2)[ch] = static_cast<float>(level[ch]);
    }
    sums[2 * l.channels] = l.count();
    communicator.all_reduce(sums, sums, 2 * l.channels + 1, DType::Float64, comm::ReduceOp::Sum, a.stream,
                            a.wait->at_most(deadline));
    const double n = sums[2 * l.channels];
    for (std::int64_t ch = 0; ch < l.channels; ++ch) {
      level[ch] = n == 0 ? 0 : level[ch] / n;
      tilt[ch] = n == 0 ? 0 : tilt[ch] / ((double{a.in<float>(4)[ch]} + epsilon) * n);
    }
    for (const int o : {3, 4}) *a.out<float>(o) = 0;
    float* const dx = a.out<float>(0);
    l.all(*pool, [&](std::int64_t at, std::int64_t ch) {
      dx[at] = static_cast<float>((double{dy[at]} - level[ch] - centred(at, ch) * tilt[ch]) * slope[ch]);
    });
  };
  return kernel;
}

/// The op whose node it takes the place of, but for where it runs.
OpDef like(const char* name, const char* original, PrepareFn cpu) {
  const OpDef& model = OpRegistry::global().require(original);
  OpDef op = exchange_op(name, Lane::Comm);
  op.traits = computes().output_list();
  op.min_inputs = model.min_inputs;
  op.infer = [infer = model.infer](InferContext& context) {
    infer(context);
    if (context.attr<bool>(kSixOutputs, false)) context.output(context.dtype(0), Shape{0});
  };
  op.cpu = std::move(cpu);
  return op;
}

}  // namespace

std::vector<NodeId> synchronize_batch_norms(Graph& graph) {
  std::vector<NodeId> nodes;
  for (const NodeId id : graph.topological_order()) {
    Node& node = graph.mutable_node(id);
    const bool backward = node.op->name.starts_with(kBackward);
    if (!node.op->name.starts_with(kForward) || !node.attrs.get("is_training", true)) continue;
    node.attrs.set(kSixOutputs, node.outputs.size() == 6);
    node.op = &OpRegistry::global().require(backward ? "braid.SyncBatchNormGrad" : "braid.SyncBatchNorm");
    nodes.push_back(id);
  }
  return nodes;
}

void register_sync_batch_norm_ops(OpRegistry& registry) {
  registry.add(like("braid.SyncBatchNorm", kForward, prepare_forward));
  registry.add(like("braid.SyncBatchNormGrad", kBackward, prepare_backward));
}

}  // namespace braid::worker
