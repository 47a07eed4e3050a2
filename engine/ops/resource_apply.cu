// CUDA kernels of TensorFlow's optimizer ops (common/resource_apply_forms.h). Hyper-parameters are read by
// the device. Sparse forms sort the indices; a few lanes take each row and apply its gradients one after
// another.
#include <algorithm>
#include <bit>

#include "engine/ops/common/cuda/sorted_rows.cuh"
#include "engine/ops/common/resource_apply_forms.h"

namespace braid {
namespace {

using namespace resource_apply;

constexpr int kPack = 4;

struct Scalars {
  Form form;
  Settings settings;
  const float* inputs[kMostInputs];  // those that are scalars, else null

  Scalars(const Form& f, const Settings& s, const KernelArgs& a) : form(f), settings(s), inputs{} {
    for (int i = f.slots + 1; i < f.inputs; ++i)
      if (i != f.gradient && i != f.indices) inputs[i] = a.in<float>(i);
  }

  /// Into shared memory, for the block. All its threads call it.
  __device__ void load(Update& shared) const {
    if (threadIdx.x == 0) shared = read_update(form, settings, [&](int input) { return *inputs[input]; });
    __syncthreads();
  }
};

struct Variable {
  float* weights;
  float* slots[cuda::kSlots];

  Variable(const Form& form, const KernelArgs& a) : weights(a.var<float>(0)), slots{} {
    for (int s = 0; s < form.slots; ++s) slots[s] = a.var<float>(s + 1);
  }
  bool is_aligned() const {  // slots that there are not are null
    return cuda::is_aligned16(weights) && cuda::is_aligned16(slots[0]) && cuda::is_aligned16(slots[1]);
  }
};

template <int kCount>
__device__ void update_at(const Update& update, const Variable& v, const float* gradient, std::int64_t at) {
  const auto g = *reinterpret_cast<const cuda::Pack<float, kCount>*>(gradient);
  with_formula(update,
               [&]<class F>() { cuda::update_pack<F, kCount>(update.shared, g, v.weights, v.slots, at); });
}

template <int kCount>
__global__ void __launch_bounds__(cuda::kThreads)
    dense_kernel(const __grid_constant__ Scalars scalars, const __grid_constant__ Variable v,
                 const float* gradient, std::int64_t n) {
  __shared__ Update update;
  scalars.load(update);
  for (std::int64_t i = cuda::grid_index() * kCount; i < n; i += cuda::grid_size() * kCount)
    update_at<kCount>(update, v, gradient + i, i);
}

template <int kCount>
__global__ void __launch_bounds__(cuda::kThreads)
    rows_kernel(const __grid_constant__ Scalars scalars, const __grid_constant__ Variable v,
                const float* gradients, const std::uint64_t* entries, std::int64_t n, std::int64_t rows,
                std::int64_t width, int lanes) {
  __shared__ Update update;
  scalars.load(update);
  const int lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  for (std::int64_t first = cuda::grid_index() / lanes; first < n; first += cuda::grid_size() / lanes) {
    const std::int64_t row = cuda::row_of(entries[first]);
    if (row >= rows || (first > 0 && cuda::row_of(entries[first - 1]) == row)) continue;
    for (std::int64_t e = first; e < n && cuda::row_of(entries[e]) == row; ++e)
      for (std::int64_t column = lane * kCount; column < width; column += lanes * kCount)
        update_at<kCount>(update, v, gradients + cuda::position_of(entries[e]) * width + column,
                          row * width + column);
  }
}

PreparedKernel prepare_dense(const Form& form, const Settings& settings, const PrepareContext& c) {
  PreparedKernel kernel;
  kernel.run = [form, settings, n = c.inputs[0].shape.elements()](const KernelArgs& a) {
    if (n == 0) return;
    const Variable v(form, a);
    const Scalars scalars(form, settings, a);
    const auto* gradient = a.in<float>(form.gradient);
    if (n % kPack == 0 && v.is_aligned() && cuda::is_aligned16(gradient))
      cuda::launch(dense_kernel<kPack>, cuda::blocks_for(n / kPack), cuda::kThreads, 0, a.stream, scalars, v,
                   gradient, n);
    else
      cuda::launch(dense_kernel<1>, cuda::blocks_for(n), cuda::kThreads, 0, a.stream, scalars, v, gradient,
                   n);
  };
  return kernel;
}

PreparedKernel prepare_sparse(const Form& form, const Settings& settings, const PrepareContext& c) {
  const OutputInfo& indices = c.inputs[static_cast<std::size_t>(form.indices)];
  const std::int64_t n = indices.shape[0], rows = c.inputs[0].shape[0];
  const std::int64_t width = rows == 0 ? 0 : c.inputs[0].shape.elements() / rows;
  const bool is_index64 = indices.dtype == DType::Int64;
  const cuda::IndexSort sort(n, rows);
  PreparedKernel kernel;
  kernel.scratch_bytes = sort.scratch_bytes();
  kernel.run = [=](const KernelArgs& a) {
    if (n == 0) return;
    cuda::RowTables table;
    table.count = 1;
    table.rows = rows;
    table.entries = n;
    table.at[0] = {.weights = nullptr,
                   .slots = {},
                   .values = nullptr,
                   .indices = a.inputs[form.indices],
                   .rows = rows,
                   .first_row = 0,
                   .first_entry = 0,
                   .is_index64 = is_index64};
    cuda::launch(cuda::row_entries_kernel, cuda::blocks_for(n), cuda::kThreads, 0, a.stream, table,
                 sort.unsorted(a.scratch), a.status, a.op);
    if (width == 0) return;
    const std::uint64_t* entries = sort.sort(a.scratch, a.stream);
    const Variable v(form, a);
    const Scalars scalars(form, settings, a);
    const auto* gradients = a.in<float>(form.gradient);
    const bool packed = width % kPack == 0 && v.is_aligned() && cuda::is_aligned16(gradients);
    const auto packs = static_cast<std::uint64_t>(packed ? width / kPack : width);
    const int lanes = static_cast<int>(std::min<std::uint64_t>(std::bit_ceil(packs), 32));
    cuda::launch(packed ? rows_kernel<kPack> : rows_kernel<1>, cuda::blocks_for(n * lanes), cuda::kThreads, 0,
                 a.stream, scalars, v, gradients, entries, n, rows, width, lanes);
  };
  return kernel;
}

bool supports(const Form& form, const Node& node, std::span<const OutputInfo> inputs) {
  if (form.kind == OptimizerKind::Adam && Settings(node.attrs).use_nesterov) return false;
  constexpr std::int64_t kMost = (1LL << 31) - 2;  // of the sort's keys and positions
  for (int i = 0; i <= form.slots; ++i)
    if (inputs[static_cast<std::size_t>(i)].dtype != DType::Float32) return false;
  return form.indices < 0 ||
         (inputs[0].shape[0] <= kMost && inputs[static_cast<std::size_t>(form.indices)].shape[0] <= kMost);
}

}  // namespace

void register_resource_apply_cuda(OpRegistry& registry) {
  for (const Form& form : kForms)
    registry.add_cuda(
        form.name,
        [&form](const PrepareContext& c) {
          const Settings settings(c.node.attrs);
          return form.indices < 0 ? prepare_dense(form, settings, c) : prepare_sparse(form, settings, c);
        },
        [&form](const Node& node, std::span<const OutputInfo> inputs) {
          return supports(form, node, inputs);
        });
}

}  // namespace braid
