// Elementwise reduction of host arrays, shared by the communicators that do it themselves, and the checks of
// arguments that all of them make alike. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/dtype.h"
#include "comm/communicator.h"

namespace braid::comm {

/// output[i] = a[i] op b[i]; integer sums wrap around; Max and Min of a NaN and a number are a NaN.
/// REQUIRES: a type that check_reduction accepts; output is a, or b, or overlaps neither.
void reduce_pair(void* output, const void* a, const void* b, std::int64_t count, DType dtype, ReduceOp op);

/// Throws: InvalidArgument "[ring] all_reduce: ..." when the count is negative, a pointer is null though
/// there are elements, or the type has no size.
void check_buffer(std::string_view backend, std::string_view operation, const void* data, std::int64_t count,
                  DType dtype);
/// Throws: InvalidArgument when the type cannot be reduced.
void check_reduction(std::string_view backend, std::string_view operation, DType dtype);
void check_rank(std::string_view backend, std::string_view operation, std::string_view role, int rank,
                int size);
/// Throws: InvalidArgument unless `peer` is another rank of the group.
void check_peer(std::string_view backend, std::string_view operation, std::string_view role, int peer,
                int rank, int size);
/// The sum of the counts of an exchange. Throws: InvalidArgument unless there are `size` of them, none
/// negative.
std::int64_t check_counts(std::string_view backend, std::string_view operation, std::string_view role,
                          std::span<const std::int64_t> counts, int size);
/// Host memory only. Throws: InvalidArgument for a CUDA stream.
void check_host_stream(std::string_view backend, std::string_view operation, StreamRef stream);
/// Both arrays of an operation on the host. Throws: as check_host_stream() and check_buffer() do.
void check_host_arrays(std::string_view backend, std::string_view operation, const void* input,
                       const void* output, std::int64_t count, DType dtype, StreamRef stream);

/// Elements in all, of one rank.
struct ExchangeCounts {
  std::int64_t sent = 0, received = 0;
};
/// The same of an exchange with a count for each pair. Throws: as check_counts() and check_host_arrays() do.
ExchangeCounts check_host_exchange(std::string_view backend, const void* input,
                                   std::span<const std::int64_t> send_counts, const void* output,
                                   std::span<const std::int64_t> recv_counts, DType dtype, int size,
                                   StreamRef stream);

}  // namespace braid::comm
