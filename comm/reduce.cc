#include "comm/reduce.h"

#include <fmt/core.h>

#include <cmath>
#include <type_traits>

#include "base/error.h"

namespace braid::comm {
namespace {

template <class T>
T larger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    if (std::isnan(a) || std::isnan(b)) return a + b;
  return a < b ? b : a;
}

template <class T>
T smaller(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    if (std::isnan(a) || std::isnan(b)) return a + b;
  return b < a ? b : a;
}

template <class T>
T sum(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;  // wraps without undefined behaviour
    return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  } else {
    return a + b;
  }
}

template <class T>
void reduce_typed(void* output, const void* left, const void* right, std::int64_t count, ReduceOp op) {
  auto* to = static_cast<T*>(output);
  auto* a = static_cast<const T*>(left);
  auto* b = static_cast<const T*>(right);
  switch (op) {
    case ReduceOp::Sum:
      for (std::int64_t i = 0; i < count; ++i) to[i] = sum(a[i], b[i]);
      return;
    case ReduceOp::Max:
      for (std::int64_t i = 0; i < count; ++i) to[i] = larger(a[i], b[i]);
      return;
    case ReduceOp::Min:
      for (std::int64_t i = 0; i < count; ++i) to[i] = smaller(a[i], b[i]);
      return;
  }
}

}  // namespace

void reduce_pair(void* output, const void* a, const void* b, std::int64_t count, DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::Float32:
      return reduce_typed<float>(output, a, b, count, op);
    case DType::Float64:
      return reduce_typed<double>(output, a, b, count, op);
    case DType::Int32:
      return reduce_typed<std::int32_t>(output, a, b, count, op);
    case DType::Int64:
      return reduce_typed<std::int64_t>(output, a, b, count, op);
    default:
      throw Internal(fmt::format("[comm] no reduction of {}", dtype_name(dtype)));
  }
}

void check_buffer(std::string_view backend, std::string_view operation, const void* data, std::int64_t count,
                  DType dtype) {
  if (count < 0) throw InvalidArgument(fmt::format("[{}] {}: count is {}", backend, operation, count));
  if (dtype_size(dtype) == 0)
    throw InvalidArgument(
        fmt::format("[{}] {}: elements of type {} cannot be sent", backend, operation, dtype_name(dtype)));
  if (count > 0 && data == nullptr)
    throw InvalidArgument(fmt::format("[{}] {}: null pointer for {} elements", backend, operation, count));
}

void check_reduction(std::string_view backend, std::string_view operation, DType dtype) {
  if (dtype != DType::Float32 && dtype != DType::Float64 && dtype != DType::Int32 && dtype != DType::Int64)
    throw InvalidArgument(
        fmt::format("[{}] {}: elements of type {} cannot be reduced; float32, float64, int32 and int64 can",
                    backend, operation, dtype_name(dtype)));
}

void check_rank(std::string_view backend, std::string_view operation, std::string_view role, int rank,
                int size) {
  if (rank < 0 || rank >= size)
    throw InvalidArgument(
        fmt::format("[{}] {}: {} {} is not a rank of a group of {}", backend, operation, role, rank, size));
}

void check_peer(std::string_view backend, std::string_view operation, std::string_view role, int peer,
                int rank, int size) {
  check_rank(backend, operation, role, peer, size);
  if (peer == rank)
    throw InvalidArgument(fmt::format("[{}] {}: {} is this rank itself", backend, operation, role));
}

std::int64_t check_counts(std::string_view backend, std::string_view operation, std::string_view role,
                          std::span<const std::int64_t> counts, int size) {
  if (std::ssize(counts) != size)
    throw InvalidArgument(fmt::format("[{}] {}: {} {} counts for a group of {}", backend, operation,
                                      counts.size(), role, size));
  std::int64_t sum = 0;
  for (const std::int64_t count : counts) {
    if (count < 0)
      throw InvalidArgument(fmt::format("[{}] {}: a {} count is {}", backend, operation, role, count));
    sum += count;
  }
  return sum;
}

void check_host_stream(std::string_view backend, std::string_view operation, StreamRef stream) {
  if (stream.kind != StreamKind::Host)
    throw InvalidArgument(fmt::format("[{}] {}: works on host streams only", backend, operation));
}

void check_host_arrays(std::string_view backend, std::string_view operation, const void* input,
                       const void* output, std::int64_t count, DType dtype, StreamRef stream) {
  check_host_stream(backend, operation, stream);
  check_buffer(backend, operation, input, count, dtype);
  check_buffer(backend, operation, output, count, dtype);
}

ExchangeCounts check_host_exchange(std::string_view backend, const void* input,
                                   std::span<const std::int64_t> send_counts, const void* output,
                                   std::span<const std::int64_t> recv_counts, DType dtype, int size,
                                   StreamRef stream) {
  const char* operation = "all_to_all";
  check_host_stream(backend, operation, stream);
  const std::int64_t sent = check_counts(backend, operation, "send", send_counts, size);
  check_buffer(backend, operation, input, sent, dtype);
  const std::int64_t received = check_counts(backend, operation, "receive", recv_counts, size);
  check_buffer(backend, operation, output, received, dtype);
  return {sent, received};
}

}  // namespace braid::comm
