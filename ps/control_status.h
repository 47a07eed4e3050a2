// How an error of ours travels as a gRPC status: a code that gRPC's tools understand, the message, and in the
// details the number of our ErrorCode. Knows gRPC's code numbers, not its headers. Thread rule: pure
// functions.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace braid::ps {

/// The grpc::StatusCode nearest to `code`.
int grpc_code_of(ErrorCode code);

/// The error that a failed call means. A status that is not ours (no details) is Unavailable, or
/// DeadlineExceeded when it says so.
ErrorCode error_code_of(int grpc_code, std::string_view details);

/// This host: "hostname/boot id". Processes on hosts of the same name can reach each other by Unix sockets.
std::string host_identity();

}  // namespace braid::ps
