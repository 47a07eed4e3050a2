#include "worker/strategies/combine_ops.h"

#include <algorithm>
#include <vector>

#include "comm/communicator.h"
#include "engine/ops/common/index_groups.h"
#include "engine/ops/common/kernel_util.h"
#include "worker/strategies/allreduce_ops.h"
#include "worker/strategies/combine.h"
#include "worker/strategies/exchange_op.h"
#include "worker/strategies/kernel_scratch.h"
#include "worker/strategies/packed_gradients.h"
#include "worker/strategies/step_services.h"

namespace braid::worker {
namespace {

constexpr std::int64_t kBlock = 256;  // elements that are sorted at a time

Combination combination_of(const PrepareContext& c) {
  return static_cast<Combination>(c.attr<std::int64_t>(kCombination, 0));
}

int trim_of(const PrepareContext& c, int world) {
  const auto trim = combination_of(c) == Combination::Median
                        ? median_trim(world)
                        : static_cast<int>(c.attr<std::int64_t>(kTrim, 0));
  if (2 * trim >= world)
    c.fail("strategy.trim leaves out " + std::to_string(2 * trim) + " values of " + std::to_string(world) +
           " workers");
  return trim;
}

double dot(const float* a, const float* b, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

/// to = sum over ranks of coefficients[r] * values[r * stride]
void add_scaled(const float* values, std::int64_t stride, std::span<const double> coefficients,
                std::int64_t count, float* to) {
  std::fill_n(to, count, 0.0F);
  for (std::size_t r = 0; r < coefficients.size(); ++r) {
    const auto scale = static_cast<float>(coefficients[r]);
    const float* const x = values + static_cast<std::int64_t>(r) * stride;
    for (std::int64_t i = 0; i < count; ++i) to[i] += scale * x[i];
  }
}

/// Of each variable, its elements that are in the part of `rank`: body(variable, first of them within the
/// part, how many).
template <class Body>
void for_variables(const PackedGradients& packed, int rank, const Body& body) {
  const std::int64_t first = packed.part * rank, last = first + packed.part;
  std::int64_t at = 0;
  for (std::size_t v = 0; v < packed.counts.size(); at += packed.counts[v++]) {
    const std::int64_t begin = std::max(at, first), end = std::min(at + packed.counts[v], last);
    body(static_cast<std::int64_t>(v), begin - first, std::max<std::int64_t>(end - begin, 0));
  }
}

PreparedKernel prepare_gradients(const PrepareContext& c) {
  auto& communicator = require_service<comm::Communicator>(c, "communicator");
  const auto deadline = require_service<StepServices>(c, "worker").peer_deadline;
  const int world = communicator.size();
  const bool adasum = combination_of(c) == Combination::Adasum;
  const int trim = adasum ? 0 : trim_of(c, world);
  const PackedGradients packed(c, world);
  const std::int64_t pairs = std::int64_t{world} * world;
  const auto variables = static_cast<std::int64_t>(packed.counts.size());
  KernelScratch layout;
  const std::size_t sent = layout.add<float>(packed.size()), received = layout.add<float>(packed.size()),
                    own = layout.add<float>(packed.part),
                    products = layout.add<double>(adasum ? variables * pairs : 0),
                    coefficients = layout.add<double>(world), spare = layout.add<double>(2 * pairs);
  PreparedKernel kernel;
  kernel.scratch_bytes = layout.bytes();
  kernel.run = [=, &communicator](const KernelArgs& args) {
    const WaitContext wait = args.wait->at_most(deadline);
    float *const all = KernelScratch::array<float>(args, sent),
                 *const values = KernelScratch::array<float>(args, received),
                 *const result = KernelScratch::array<float>(args, own);
    packed.pack(args, all);
    communicator.all_to_all(all, values, packed.part, DType::Float32, args.stream, wait);
    if (!adasum) {
      for (std::int64_t at = 0; at < packed.part; at += kBlock)
        combine_sorted(values + at, packed.part, world, trim, std::min(kBlock, packed.part - at),
                       result + at);
    } else {
      double* const dots = KernelScratch::array<double>(args, products);
      for_variables(packed, communicator.rank(), [&](std::int64_t v, std::int64_t begin, std::int64_t count) {
        for (int i = 0; i < world; ++i)
          for (int j = 0; j <= i; ++j)
            dots[v * pairs + i * world + j] = dots[v * pairs + j * world + i] =
                count == 0 ? 0
                           : dot(values + i * packed.part + begin, values + j * packed.part + begin, count);
      });
      communicator.all_reduce(dots, dots, variables * pairs, DType::Float64, comm::ReduceOp::Sum, args.stream,
                              wait);
      const std::span<double> scales(KernelScratch::array<double>(args, coefficients),
                                     static_cast<std::size_t>(world));
      std::fill_n(result, packed.part, 0.0F);
      for_variables(packed, communicator.rank(), [&](std::int64_t v, std::int64_t begin, std::int64_t count) {
        if (count == 0) return;
        adasum_coefficients({dots + v * pairs, static_cast<std::size_t>(pairs)}, scales,
                            {KernelScratch::array<double>(args, spare), static_cast<std::size_t>(2 * pairs)});
        add_scaled(values + begin, packed.part, scales, count, result + begin);
      });
    }
    communicator.all_gather(result, all, packed.part, DType::Float32, args.stream, wait);
    packed.unpack(all, args);
  };
  return kernel;
}

/// Which rank each gathered row is from: rows below ends[r] are of ranks up to r.
std::vector<std::int64_t> ends_of_ranks(const PrepareContext& c, std::int64_t rows) {
  const auto world = c.attr<std::int64_t>("world", 1);
  const auto of_rank = c.attr<std::vector<std::int64_t>>(kIndexRows, {});
  std::vector<std::int64_t> ends;
  for (std::int64_t r = 0; r < world; ++r)
    ends.push_back((ends.empty() ? 0 : ends.back()) +
                   (of_rank.empty() ? rows / world : of_rank[static_cast<std::size_t>(r)]));
  return ends;
}

/// products[i][j] += values[i] . values[j], for j up to i
void add_products(const float* values, std::int64_t width, int world, double* products) {
  for (int i = 0; i < world; ++i)
    for (int j = 0; j <= i; ++j)
      products[i * world + j] += dot(values + i * width, values + j * width, width);
}

template <class Index>
PreparedKernel rows_kernel(const PrepareContext& c) {
  const std::int64_t rows = c.inputs[0].shape.elements(), elements = c.inputs[1].shape.elements();
  const std::int64_t width = rows == 0 ? 0 : elements / rows;
  const std::vector<std::int64_t> ends = ends_of_ranks(c, rows);
  const int world = static_cast<int>(ends.size());
  const bool adasum = combination_of(c) == Combination::Adasum;
  const int trim = adasum ? 0 : trim_of(c, world);
  const std::int64_t pairs = std::int64_t{world} * world;
  KernelScratch layout;
  const std::size_t groups_at =
                        layout.add<std::byte>(static_cast<std::int64_t>(IndexGroups::scratch_bytes(rows))),
                    sums_at = layout.add<float>(world * width), products_at = layout.add<double>(pairs),
                    scales_at = layout.add<double>(world), spare_at = layout.add<double>(2 * pairs);
  const auto bound = c.attr<std::int64_t>("rows", 0);
  PreparedKernel kernel;
  kernel.scratch_bytes = layout.bytes();
  kernel.run = [=, place = place_of(c.node)](const KernelArgs& args) {
    float* const out = args.out<float>(0);
    std::fill_n(out, elements, 0.0F);
    if (elements == 0) return;
    check_indices(place, args.in<Index>(0), rows, bound);
    const IndexGroups groups(args.in<Index>(0), rows, bound,
                             KernelScratch::array<std::byte>(args, groups_at));
    const float* const values = args.in<float>(1);
    float* const sums = KernelScratch::array<float>(args, sums_at);
    double* const products = KernelScratch::array<double>(args, products_at);
    const std::span<double> scales(KernelScratch::array<double>(args, scales_at),
                                   static_cast<std::size_t>(world));
    /// The sums of each rank's rows of the group.
    const auto add_up = [&](std::int64_t g) {
      std::fill_n(sums, world * width, 0.0F);
      for (std::int64_t e = groups.begin(g); e < groups.end(g); ++e) {
        const std::int64_t at = groups.position(e);
        const auto rank = std::upper_bound(ends.begin(), ends.end(), at) - ends.begin();
        for (std::int64_t i = 0; i < width; ++i) sums[rank * width + i] += values[at * width + i];
      }
    };
    if (adasum) {
      std::fill_n(products, pairs, 0.0);
      for (std::int64_t g = 0; g < groups.size(); ++g) {
        add_up(g);
        add_products(sums, width, world, products);
      }
      for (int i = 0; i < world; ++i)
        for (int j = 0; j < i; ++j) products[j * world + i] = products[i * world + j];
      adasum_coefficients(
          {products, static_cast<std::size_t>(pairs)}, scales,
          {KernelScratch::array<double>(args, spare_at), static_cast<std::size_t>(2 * pairs)});
    }
    for (std::int64_t g = 0; g < groups.size(); ++g) {
      add_up(g);
      float* const to = out + groups.position(groups.begin(g)) * width;
      if (adasum)
        add_scaled(sums, width, scales, width, to);
      else
        combine_sorted(sums, width, world, trim, width, to);
    }
  };
  return kernel;
}

PreparedKernel prepare_rows(const PrepareContext& c) {
  if (c.inputs[1].dtype != DType::Float32) c.fail("gradients must be float32");
  return c.inputs[0].dtype == DType::Int32 ? rows_kernel<std::int32_t>(c) : rows_kernel<std::int64_t>(c);
}

}  // namespace

void register_combine_ops(OpRegistry& registry) {
  OpDef gradients = exchange_op("braid.CombineGradients", Lane::Comm);
  gradients.traits = computes().output_list();
  gradients.min_inputs = 1;
  gradients.infer = [](InferContext& context) {
    for (int i = 0; i < context.inputs(); ++i) context.output(context.dtype(i), context.shape(i));
  };
  gradients.cpu = prepare_gradients;
  registry.add(std::move(gradients));

  OpDef rows;
  rows.name = "braid.CombineRows";
  rows.traits = computes().type_attrs({{"Tindices", 0}, {"T", 1}});
  rows.min_inputs = rows.max_inputs = 2;
  rows.infer = [](InferContext& context) { context.output(context.dtype(1), context.shape(1)); };
  rows.no_gradient_reason = "combines gradients of several workers";
  rows.cpu = prepare_rows;
  registry.add(std::move(rows));
}

}  // namespace braid::worker
