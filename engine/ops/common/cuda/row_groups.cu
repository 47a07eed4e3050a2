// Entries are sorted by row. A thread takes one column, or V that it loads and stores at once, of a chunk of
// them and joins each run of equal rows. A
// run inside the chunk is written at once; the pieces of one that crosses borders are kept as the chunk's
// head (what began before it) and tail (what goes on after it), and a second kernel joins tail, heads, and
// writes.
#include "engine/ops/common/cuda/row_groups.h"

#include "engine/ops/common/cuda/divide.cuh"
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/scatter_rows.h"

namespace braid::cuda {
namespace {

constexpr int kBatch = 8;         // entries whose loads are in flight together
constexpr int kBorderBatch = 16;  // the same of partial results

constexpr std::int64_t kBusyItems = 132 * 512;  // fewer leave a device idle: then threads take a column each

template <class T>
__device__ T reduced(RowReduce reduce, T a, T b) {
  switch (reduce) {
    case RowReduce::Sum:
      return scatter::Add::apply(a, b);
    case RowReduce::Prod:
      return scatter::Mul::apply(a, b);
    case RowReduce::Min:
      return scatter::Min::apply(a, b);
    case RowReduce::Max:
      return scatter::Max::apply(a, b);
    case RowReduce::Last:
      break;
  }
  return b;
}

template <class T>
__device__ void write(RowWrite write, T& row, T x, std::int64_t count) {
  switch (write) {
    case RowWrite::Set:
      row = x;
      return;
    case RowWrite::Mean:
      row = x / static_cast<T>(count);
      return;
    case RowWrite::RootMean:
      row = static_cast<T>(x * static_cast<T>(1 / sqrt(static_cast<double>(count))));
      return;
    case RowWrite::Add:
      row = scatter::Add::apply(row, x);
      return;
    case RowWrite::Sub:
      row = scatter::Sub::apply(row, x);
      return;
    case RowWrite::Mul:
      row = scatter::Mul::apply(row, x);
      return;
    case RowWrite::Div:
      row = row / x;
      return;
    case RowWrite::Min:
      row = scatter::Min::apply(row, x);
      return;
    case RowWrite::Max:
      row = scatter::Max::apply(row, x);
      return;
  }
}

/// One launch's arguments.
template <class T>
struct Runs {
  const std::uint64_t* keys;
  std::int64_t n, rows, width, chunk, chunks;
  Divider by_width;
  RowReduce reduce;
  RowWrite write;
  T* heads;  // [chunks, width]
  T* tails;  // [chunks, width]
  T* target;
  const T* data;
  const T* scale;
  bool scales_updates;
  std::int64_t row_stride, column_stride;
  const std::int32_t* row_of32;
  const std::int64_t* row_of64;

  __device__ std::int64_t row(std::int64_t entry) const {
    return static_cast<std::int64_t>(keys[entry] >> 32);
  }
  /// Of kBatch entries; those from `end` on have no row.
  __device__ void load_keys(std::int64_t from, std::int64_t end, std::uint64_t* to) const {
#pragma unroll
    for (int k = 0; k < kBatch; ++k) to[k] = from + k < end ? keys[from + k] : ~std::uint64_t{0};
  }
  /// V columns from `column` on.
  template <int V>
  __device__ Pack<T, V> load(std::uint64_t key, std::int64_t column) const {
    const auto update = static_cast<std::int64_t>(key & 0xffffffffU);
    std::int64_t at = update;
    if (row_of32) at = row_of32[at];
    if (row_of64) at = row_of64[at];
    const T* const from = data + at * row_stride + column * column_stride;
    Pack<T, V> values = *reinterpret_cast<const Pack<T, V>*>(from);
    if (!scale) return values;
    const T by = scale[scales_updates ? update : at];
#pragma unroll
    for (int v = 0; v < V; ++v) values.at[v] = static_cast<T>(values.at[v] * by);
    return values;
  }
  /// The chunk and the first column that item i is, of chunks * width / V.
  template <int V>
  __device__ void locate(std::int64_t i, std::int64_t& chunk_index, std::int64_t& column) const {
    if (chunks * width < kDividerLimit)
      chunk_index = by_width.quotient(static_cast<std::uint32_t>(i));
    else
      chunk_index = i / (width / V);
    column = i * V - chunk_index * width;
  }
};

template <class T, int V>
__device__ void reduce(RowReduce how, Pack<T, V>& sum, const Pack<T, V>& more) {
#pragma unroll
  for (int v = 0; v < V; ++v) sum.at[v] = reduced(how, sum.at[v], more.at[v]);
}
template <class T, int V>
__device__ void write(RowWrite how, T* to, const Pack<T, V>& x, std::int64_t count) {
  Pack<T, V> row;
  if (how != RowWrite::Set) row = *reinterpret_cast<const Pack<T, V>*>(to);
#pragma unroll
  for (int v = 0; v < V; ++v) write(how, row.at[v], x.at[v], count);
  *reinterpret_cast<Pack<T, V>*>(to) = row;
}
template <class T, int V>
__device__ void keep(T* to, const Pack<T, V>& x) {
  *reinterpret_cast<Pack<T, V>*>(to) = x;
}

/// What runs become is known when the kernel is made, where it is a sum that is written: no choice an
/// element.
template <class T, int V, bool kPlainSum>
__global__ void join_chunks_kernel(const __grid_constant__ Runs<T> r) {
  using Values = Pack<T, V>;
  const RowReduce how = kPlainSum ? RowReduce::Sum : r.reduce;
  const RowWrite writes = kPlainSum ? RowWrite::Set : r.write;
  for (std::int64_t i = grid_index(); i < r.chunks * r.width / V; i += grid_size()) {
    std::int64_t c, column;
    r.template locate<V>(i, c, column);
    const std::int64_t begin = c * r.chunk, end = min(begin + r.chunk, r.n);
    std::int64_t row = r.row(begin), first = begin;
    bool began_before = begin > 0 && r.row(begin - 1) == row;
    Values sum{};
    std::uint64_t keys[kBatch];
    r.load_keys(begin, end, keys);
    for (std::int64_t batch = begin; batch < end; batch += kBatch) {
      Values values[kBatch];
#pragma unroll
      for (int k = 0; k < kBatch; ++k)
        values[k] = static_cast<std::int64_t>(keys[k] >> 32) < r.rows ? r.template load<V>(keys[k], column)
                                                                      : Values{};
      std::uint64_t next_keys[kBatch];  // on their way while the values are
      r.load_keys(batch + kBatch, end, next_keys);
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        const std::int64_t entry = batch + k;
        if (entry >= end) break;
        const auto next = static_cast<std::int64_t>(keys[k] >> 32);
        if (entry > begin && next == row) {
          reduce(how, sum, values[k]);
          continue;
        }
        if (entry > begin) {  // the run before ends here
          if (began_before)
            keep(r.heads + i * V, sum);
          else if (row < r.rows)
            write(writes, r.target + row * r.width + column, sum, entry - first);
          began_before = false;
          row = next;
          first = entry;
        }
        sum = values[k];
      }
#pragma unroll
      for (int k = 0; k < kBatch; ++k) keys[k] = next_keys[k];
    }
    const bool goes_on = end < r.n && r.row(end) == row;
    if (began_before)
      keep(r.heads + i * V, sum);
    else if (goes_on)
      keep(r.tails + i * V, sum);
    else if (row < r.rows)
      write(writes, r.target + row * r.width + column, sum, end - first);
  }
}

/// The first entry from `low` on whose row is above `row`, or, with `equal`, not below it.
template <class T>
__device__ std::int64_t bound_of(const Runs<T>& r, std::int64_t low, std::int64_t row, bool equal) {
  std::int64_t high = r.n;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    const std::int64_t at = r.row(middle);
    if (at < row || (!equal && at == row))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

template <class T, int V>
__global__ void join_borders_kernel(const __grid_constant__ Runs<T> r) {
  using Values = Pack<T, V>;
  constexpr int kAhead = kBorderBatch / (V > 1 ? 2 : 1);
  for (std::int64_t i = grid_index(); i < r.chunks * r.width / V; i += grid_size()) {
    std::int64_t c, column;
    r.template locate<V>(i, c, column);
    const std::int64_t begin = c * r.chunk, end = begin + r.chunk;
    if (end >= r.n) continue;
    const std::int64_t row = r.row(end - 1);
    const bool goes_on = r.row(end) == row && row < r.rows;
    const bool began_before = begin > 0 && r.row(begin - 1) == row;
    if (!goes_on || began_before) continue;
    // Most runs end in the next chunk; the end of a longer one is searched for.
    const std::int64_t after_next = end + r.chunk;
    std::int64_t last = c + 1;
    if (after_next < r.n && r.row(after_next) == row)
      last = (bound_of(r, after_next, row, false) - 1) / r.chunk;
    Values sum = *reinterpret_cast<const Values*>(r.tails + i * V);
    for (std::int64_t batch = c + 1; batch <= last; batch += kAhead) {
      Values heads[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k)
        heads[k] = batch + k <= last
                       ? *reinterpret_cast<const Values*>(r.heads + (batch + k) * r.width + column)
                       : Values{};
#pragma unroll
      for (int k = 0; k < kAhead; ++k)
        if (batch + k <= last) reduce(r.reduce, sum, heads[k]);
    }
    const bool counts = r.write == RowWrite::Mean || r.write == RowWrite::RootMean;
    write(r.write, r.target + row * r.width + column, sum,
          counts ? bound_of(r, end, row, false) - bound_of(r, begin, row, true) : 0);
  }
}

template <class I>
__global__ void index_kernel(const I* indices, std::uint64_t* entries, std::int64_t n, std::int64_t rows,
                             bool allow_negative, StepStatus* status, int op) {
  for (std::int64_t k = grid_index(); k < n; k += grid_size()) {
    auto row = static_cast<std::int64_t>(indices[k]);
    if (row < 0 || row >= rows) {
      if (row >= 0 || !allow_negative) report(status, op, StatusCode::IndexOutOfRange, row, rows);
      row = rows;
    }
    entries[k] = static_cast<std::uint64_t>(row) << 32 | static_cast<std::uint64_t>(k);
  }
}

std::int64_t chunk_for(std::int64_t updates) {
  if (updates <= 8192) return kBatch;
  if (updates <= 32768) return 2 * kBatch;
  return updates <= 131072 ? 4 * kBatch : 8 * kBatch;
}

const RowUpdateSpec& checked(const PrepareContext& c, const RowUpdateSpec& spec) {
  if (spec.updates >= kDividerLimit || spec.rows >= kDividerLimit)
    c.fail(std::to_string(spec.updates) + " updates of " + std::to_string(spec.rows) +
           " rows are too many for a device");
  return spec;
}

}  // namespace

RowUpdate::RowUpdate(const PrepareContext& c, const RowUpdateSpec& spec)
    : spec_(checked(c, spec)),
      sort_(spec.updates, spec.rows),
      chunk_(chunk_for(spec.updates)),
      chunks_((spec.updates + chunk_ - 1) / chunk_),
      partial_bytes_((static_cast<std::size_t>(chunks_ * spec.width) * dtype_size(spec.dtype) + 255) / 256 *
                     256) {}

void RowUpdate::index(const KernelArgs& args, void* scratch, const void* indices, DType index_type,
                      bool allow_negative) const {
  if (spec_.updates == 0) return;
  with_index("RowUpdate", index_type, [&]<class I>() {
    launch(index_kernel<I>, blocks_for(spec_.updates), kThreads, 0, args.stream,
           static_cast<const I*>(indices), entries(scratch), spec_.updates, spec_.rows, allow_negative,
           args.status, args.op);
  });
}

void RowUpdate::apply(void* scratch, StreamRef stream, const RowValues& values, void* target) const {
  if (spec_.updates == 0 || spec_.rows == 0 || spec_.width == 0) return;
  const std::uint64_t* keys = spec_.sorted ? entries(scratch) : sort_.sort(scratch, stream);
  auto* partials = static_cast<char*>(scratch) + sort_.scratch_bytes();
  with_number("RowUpdate", spec_.dtype, [&]<class T>() {
    const bool wide = values.row_type == DType::Int64;
    constexpr int kPacked = kPackOf<T>;
    const bool packed = spec_.width % kPacked == 0 && values.column_stride == 1 &&
                        values.row_stride % kPacked == 0 && is_aligned16(values.data) &&
                        is_aligned16(target) && is_aligned16(partials) &&
                        chunks_ * spec_.width / kPacked >= kBusyItems;
    const std::int64_t packs = packed ? spec_.width / kPacked : spec_.width;
    const Runs<T> runs{
        .keys = keys,
        .n = spec_.updates,
        .rows = spec_.rows,
        .width = spec_.width,
        .chunk = chunk_,
        .chunks = chunks_,
        .by_width = packs < kDividerLimit ? Divider(packs) : Divider(),
        .reduce = spec_.reduce,
        .write = spec_.write,
        .heads = reinterpret_cast<T*>(partials),
        .tails = reinterpret_cast<T*>(partials + partial_bytes_),
        .target = static_cast<T*>(target),
        .data = static_cast<const T*>(values.data),
        .scale = static_cast<const T*>(values.scale),
        .scales_updates = values.scales_updates,
        .row_stride = values.row_stride,
        .column_stride = values.column_stride,
        .row_of32 = wide ? nullptr : static_cast<const std::int32_t*>(values.row_of),
        .row_of64 = wide ? static_cast<const std::int64_t*>(values.row_of) : nullptr,
    };
    const unsigned blocks = blocks_for(chunks_ * packs);
    const bool plain = spec_.reduce == RowReduce::Sum && spec_.write == RowWrite::Set;
    if (packed)
      launch(plain ? join_chunks_kernel<T, kPacked, true> : join_chunks_kernel<T, kPacked, false>, blocks,
             kThreads, 0, stream, runs);
    else
      launch(plain ? join_chunks_kernel<T, 1, true> : join_chunks_kernel<T, 1, false>, blocks, kThreads, 0,
             stream, runs);
    if (chunks_ > 1)
      launch(packed ? join_borders_kernel<T, kPacked> : join_borders_kernel<T, 1>, blocks, kThreads, 0,
             stream, runs);
  });
}

bool is_row_type(DType dtype) {
  return dtype == DType::Float32 || dtype == DType::Float64 || dtype == DType::Int32 || dtype == DType::Int64;
}

}  // namespace braid::cuda
