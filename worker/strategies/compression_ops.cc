#include "worker/strategies/compression_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "engine/ops/common/gemm.h"
#include "proto/job.pb.h"
#include "worker/strategies/compression.h"
#include "worker/strategies/exchange_op.h"
#include "worker/strategies/kernel_scratch.h"
#include "worker/strategies/packed_gradients.h"
#include "worker/strategies/step_services.h"

namespace braid::worker {
namespace {

using Ints = std::vector<std::int64_t>;

/// The number of outputs: gradients stand first.
std::int64_t variables_of(const PrepareContext& c) { return static_cast<std::int64_t>(c.outputs.size()); }

/// Errors to and from one array.
void add_errors(const PackedGradients& packed, const KernelArgs& args, float* x) {
  const std::size_t n = packed.counts.size();
  for (std::size_t v = 0; v < n; x += packed.counts[v++]) {
    const auto* const error = static_cast<const float*>(args.inputs[n + v]);
    for (std::int64_t i = 0; i < packed.counts[v]; ++i) x[i] += error[i];
  }
}
void store_errors(const PackedGradients& packed, const float* x, const KernelArgs& args) {
  const std::size_t n = packed.counts.size();
  for (std::size_t v = 0; v < n; x += packed.counts[v++])
    std::memcpy(args.inputs[n + v], x, static_cast<std::size_t>(packed.counts[v]) * sizeof(float));
}

PreparedKernel prepare_int8(const PrepareContext& c, comm::Communicator& communicator,
                            std::chrono::nanoseconds deadline) {
  const auto block = c.attr<std::int64_t>("block", 256);
  const int world = communicator.size();
  const PackedGradients packed(c, world, variables_of(c), block);
  const std::int64_t bytes = int8_bytes(packed.part, block);
  KernelScratch scratch;
  const std::size_t x_at = scratch.add<float>(packed.size()), sent_at = scratch.add<std::byte>(bytes * world),
                    received_at = scratch.add<std::byte>(bytes * world),
                    sum_at = scratch.add<float>(packed.size());
  PreparedKernel kernel;
  kernel.scratch_bytes = scratch.bytes();
  kernel.run = [=, &communicator](const KernelArgs& args) {
    const WaitContext wait = args.wait->at_most(deadline);
    auto *const x = KernelScratch::array<float>(args, x_at), *const sum =
                                                                 KernelScratch::array<float>(args, sum_at);
    auto *const sent = KernelScratch::array<std::byte>(args, sent_at), *const received =
                                                                           KernelScratch::array<std::byte>(
                                                                               args, received_at);
    packed.pack(args, x);
    add_errors(packed, args, x);
    for (int r = 0; r < world; ++r) encode_int8(x + r * packed.part, packed.part, block, sent + r * bytes);
    communicator.all_to_all(sent, received, bytes, DType::UInt8, args.stream, wait);
    std::fill_n(sum, packed.part, 0.0F);
    for (int r = 0; r < world; ++r) add_int8(received + r * bytes, packed.part, block, sum);
    encode_int8(sum, packed.part, block, sent);
    float* const own = x + communicator.rank() * packed.part;
    for (std::int64_t i = 0; i < packed.part; ++i) own[i] += sum[i];
    communicator.all_gather(sent, received, bytes, DType::UInt8, args.stream, wait);
    std::fill_n(sum, packed.size(), 0.0F);
    for (int r = 0; r < world; ++r) add_int8(received + r * bytes, packed.part, block, sum + r * packed.part);
    packed.unpack(sum, args);
    store_errors(packed, x, args);
  };
  return kernel;
}

PreparedKernel prepare_top_k(const PrepareContext& c, comm::Communicator& communicator,
                             std::chrono::nanoseconds deadline) {
  const int world = communicator.size();
  const PackedGradients packed(c, 1, variables_of(c));
  if (packed.total > INT32_MAX) c.fail("a bucket of 2^31 elements and more has no places in 32 bits");
  const std::int64_t k =
      packed.total == 0
          ? 0
          : std::clamp<std::int64_t>(static_cast<std::int64_t>(std::ceil(c.attr<double>("keep", 0.01) *
                                                                         static_cast<double>(packed.total))),
                                     1, packed.total);
  KernelScratch scratch;
  const std::size_t x_at = scratch.add<float>(packed.total),
                    order_at = scratch.add<std::int32_t>(packed.total),
                    sent_at = scratch.add<std::int32_t>(2 * k),
                    received_at = scratch.add<std::int32_t>(2 * k * world);
  PreparedKernel kernel;
  kernel.scratch_bytes = scratch.bytes();
  kernel.run = [=, &communicator](const KernelArgs& args) {
    if (k == 0) return;
    auto* const x = KernelScratch::array<float>(args, x_at);
    auto *const sent = KernelScratch::array<std::int32_t>(args, sent_at),
                *const received = KernelScratch::array<std::int32_t>(args, received_at);
    packed.pack(args, x);
    add_errors(packed, args, x);
    take_largest(x, packed.total, k, KernelScratch::array<std::int32_t>(args, order_at), sent,
                 reinterpret_cast<float*>(sent + k));
    communicator.all_gather(sent, received, 2 * k, DType::Int32, args.stream, args.wait->at_most(deadline));
    store_errors(packed, x, args);
    std::fill_n(x, packed.total, 0.0F);
    for (int r = 0; r < world; ++r) {
      const std::int32_t* const places = received + 2 * k * r;
      const auto* const values = reinterpret_cast<const float*>(places + k);
      for (std::int64_t i = 0; i < k; ++i) x[places[i]] += values[i];
    }
    packed.unpack(x, args);
  };
  return kernel;
}

/// A product that a kernel makes of its own memory.
class Product {
 public:
  Product(const PrepareContext& c, const Gemm& gemm) {
    const auto matrix = [](std::int64_t rows, std::int64_t columns, bool transposed) {
      return OutputInfo{DType::Float32, transposed ? Shape{columns, rows} : Shape{rows, columns}};
    };
    const OutputInfo inputs[] = {matrix(gemm.m, gemm.k, gemm.transpose_a),
                                 matrix(gemm.k, gemm.n, gemm.transpose_b)};
    const OutputInfo outputs[] = {matrix(gemm.m, gemm.n, false)};
    const Tensor* values[] = {nullptr, nullptr};
    kernel_ = prepare_gemm({c.node, inputs, outputs, values, c.pool, c.services, c.deterministic}, gemm);
  }
  std::size_t scratch_bytes() const { return kernel_.scratch_bytes; }
  void run(const float* a, const float* b, float* to, void* scratch, const KernelArgs& args) const {
    void* inputs[] = {const_cast<float*>(a), const_cast<float*>(b)};
    void* outputs[] = {to};
    KernelArgs own = args;
    own.inputs = inputs;
    own.outputs = outputs;
    own.scratch = scratch;
    kernel_.run(own);
  }

 private:
  PreparedKernel kernel_;
};

/// A variable of POWER_SGD, of which p, or all of it, lies at `first` in the first array that is reduced, and
/// q at `second` in the second one.
struct Thin {
  std::int64_t n = 0, m = 0, r = 0;  // r is 0: sent as it is
  std::int64_t first = 0, second = 0;
  std::size_t error = 0, q = 0;  // inputs
  std::shared_ptr<const Product> to_p, to_q, from;
};

/// What a step of POWER_SGD needs, and where: made once, read by each step.
class PowerStep {
 public:
  PowerStep(const PrepareContext& c, comm::Communicator& communicator, std::chrono::nanoseconds deadline)
      : communicator_(communicator), deadline_(deadline) {
    const Ints ranks = c.attr<Ints>("ranks", {});
    const auto count = static_cast<std::size_t>(variables_of(c));
    const auto compressed = static_cast<std::size_t>(
        std::count_if(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(count),
                      [](std::int64_t rank) { return rank > 0; }));
    std::int64_t largest = 0;
    std::size_t product_bytes = 0, next = count;
    for (std::size_t v = 0; v < count; ++v) {
      Thin one = lay_out(c, v, ranks[v]);
      if (one.r > 0) {
        one.error = next;
        one.q = compressed + next++;
        largest = std::max(largest, one.n * one.m);
        add_products(c, one, product_bytes);
      }
      thin_.push_back(std::move(one));
    }
    first_at_ = scratch_.add<float>(first_);
    second_at_ = scratch_.add<float>(second_);
    made_at_ = scratch_.add<float>(largest);
    product_at_ = scratch_.add<std::byte>(static_cast<std::int64_t>(product_bytes));
  }

  std::size_t scratch_bytes() const { return scratch_.bytes(); }

  void run(const KernelArgs& args) const {
    const WaitContext wait = args.wait->at_most(deadline_);
    auto *const ps = KernelScratch::array<float>(args, first_at_), *const qs = KernelScratch::array<float>(
                                                                       args, second_at_);
    make_p(args, ps);
    reduce(args, wait, ps, first_);
    make_q(args, ps, qs);
    reduce(args, wait, qs, second_);
    give(args, ps, qs);
  }

 private:
  Thin lay_out(const PrepareContext& c, std::size_t variable, std::int64_t rank) {
    const Shape& shape = c.inputs[variable].shape;
    if (c.inputs[variable].dtype != DType::Float32) c.fail("gradients must be float32");
    Thin one;
    one.r = rank;
    one.n = one.r == 0 || shape.rank() == 0 ? 1 : shape[0];
    one.m = one.n == 0 ? 0 : shape.elements() / one.n;
    one.first = first_;
    one.second = second_;
    first_ += one.r == 0 ? shape.elements() : one.n * one.r;
    second_ += one.m * one.r;
    return one;
  }

  static void add_products(const PrepareContext& c, Thin& one, std::size_t& bytes) {
    const auto product = [&](std::int64_t m, std::int64_t n, std::int64_t k, bool ta, bool tb) {
      auto made = std::make_shared<const Product>(
          c, Gemm{.m = m, .n = n, .k = k, .transpose_a = ta, .transpose_b = tb});
      bytes = std::max(bytes, made->scratch_bytes());
      return made;
    };
    one.to_p = product(one.n, one.r, one.m, false, false);
    one.to_q = product(one.m, one.r, one.n, true, false);
    one.from = product(one.n, one.m, one.r, false, true);
  }

  static float* error_of(const KernelArgs& args, const Thin& one) {
    return static_cast<float*>(args.inputs[one.error]);
  }

  void reduce(const KernelArgs& args, const WaitContext& wait, float* values, std::int64_t elements) const {
    if (elements > 0)
      communicator_.all_reduce(values, values, elements, DType::Float32, comm::ReduceOp::Sum, args.stream,
                               wait);
  }

  void make_p(const KernelArgs& args, float* ps) const {
    void* const product = KernelScratch::array<std::byte>(args, product_at_);
    for (std::size_t v = 0; v < thin_.size(); ++v) {
      const Thin& one = thin_[v];
      const float* const gradient = args.in<float>(static_cast<int>(v));
      if (one.r == 0) {
        std::copy_n(gradient, one.n * one.m, ps + one.first);
        continue;
      }
      float* const x = error_of(args, one);
      for (std::int64_t i = 0; i < one.n * one.m; ++i) x[i] += gradient[i];
      one.to_p->run(x, static_cast<const float*>(args.inputs[one.q]), ps + one.first, product, args);
    }
  }

  void make_q(const KernelArgs& args, float* ps, float* qs) const {
    void* const product = KernelScratch::array<std::byte>(args, product_at_);
    auto* const made = KernelScratch::array<float>(args, made_at_);
    for (const Thin& one : thin_) {
      if (one.r == 0) continue;
      float *const p = ps + one.first, *const q = qs + one.second, *const x = error_of(args, one);
      orthonormalize(p, one.n, one.r);
      one.to_q->run(x, p, q, product, args);
      one.from->run(p, q, made, product, args);
      for (std::int64_t i = 0; i < one.n * one.m; ++i) x[i] -= made[i];
    }
  }

  void give(const KernelArgs& args, const float* ps, const float* qs) const {
    void* const product = KernelScratch::array<std::byte>(args, product_at_);
    const float mean = 1.0F / static_cast<float>(communicator_.size());
    for (std::size_t v = 0; v < thin_.size(); ++v) {
      const Thin& one = thin_[v];
      auto* const to = args.out<float>(static_cast<int>(v));
      if (one.r == 0) {
        std::copy_n(ps + one.first, one.n * one.m, to);
        continue;
      }
      const float* const q = qs + one.second;
      one.from->run(ps + one.first, q, to, product, args);
      auto* const kept = static_cast<float*>(args.inputs[one.q]);
      for (std::int64_t i = 0; i < one.m * one.r; ++i) kept[i] = mean * q[i];
    }
  }

  comm::Communicator& communicator_;
  std::chrono::nanoseconds deadline_;
  std::vector<Thin> thin_;
  std::int64_t first_ = 0, second_ = 0;  // elements of the arrays that are reduced
  KernelScratch scratch_;
  std::size_t first_at_ = 0, second_at_ = 0, made_at_ = 0, product_at_ = 0;
};

PreparedKernel prepare_power(const PrepareContext& c, comm::Communicator& communicator,
                             std::chrono::nanoseconds deadline) {
  const auto step = std::make_shared<const PowerStep>(c, communicator, deadline);
  PreparedKernel kernel;
  kernel.scratch_bytes = step->scratch_bytes();
  kernel.run = [step](const KernelArgs& args) { step->run(args); };
  return kernel;
}

PreparedKernel prepare_compressed(const PrepareContext& c) {
  auto& communicator = require_service<comm::Communicator>(c, "communicator");
  const auto deadline = require_service<StepServices>(c, "worker").peer_deadline;
  switch (static_cast<proto::Compression::Kind>(c.attr<std::int64_t>("compression", 0))) {
    case proto::Compression::INT8:
      return prepare_int8(c, communicator, deadline);
    case proto::Compression::TOP_K:
      return prepare_top_k(c, communicator, deadline);
    case proto::Compression::POWER_SGD:
      return prepare_power(c, communicator, deadline);
    default:
      c.fail("knows no such compression");
  }
}

}  // namespace

void register_compression_ops(OpRegistry& registry) {
  OpDef op = exchange_op("braid.CompressedAllReduce", Lane::Comm);
  op.traits = computes().output_list();
  op.min_inputs = 1;
  op.infer = [](InferContext& context) {
    for (int i = 0; i < context.inputs() && context.dtype(i) != DType::Resource; ++i)
      context.output(context.dtype(i), context.shape(i));
  };
  op.cpu = prepare_compressed;
  op.further_handles = Access::ReadWrite;
  registry.add(std::move(op));
}

}  // namespace braid::worker
