#include "ps/control_status.h"

#include <unistd.h>

#include <array>
#include <charconv>
#include <fstream>

namespace braid::ps {
namespace {

// https://grpc.github.io/grpc/core/md_doc_statuscodes.html
constexpr int kCancelled = 1;
constexpr int kInvalidArgument = 3;
constexpr int kDeadlineExceeded = 4;
constexpr int kResourceExhausted = 8;
constexpr int kOutOfRange = 11;
constexpr int kInternal = 13;
constexpr int kUnavailable = 14;
constexpr int kDataLoss = 15;

}  // namespace

int grpc_code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::InvalidArgument:
      return kInvalidArgument;
    case ErrorCode::Unavailable:
      return kUnavailable;
    case ErrorCode::DeadlineExceeded:
      return kDeadlineExceeded;
    case ErrorCode::OutOfMemory:
      return kResourceExhausted;
    case ErrorCode::DataLoss:
      return kDataLoss;
    case ErrorCode::Cancelled:
      return kCancelled;
    case ErrorCode::OutOfRange:
      return kOutOfRange;
    case ErrorCode::DeviceError:
    case ErrorCode::Internal:
      break;
  }
  return kInternal;
}

ErrorCode error_code_of(int grpc_code, std::string_view details) {
  int number = 0;
  const auto parsed = std::from_chars(details.data(), details.data() + details.size(), number);
  if (parsed.ec == std::errc() && number >= static_cast<int>(ErrorCode::InvalidArgument) &&
      number <= static_cast<int>(ErrorCode::OutOfRange))
    return static_cast<ErrorCode>(number);
  if (grpc_code == kDeadlineExceeded) return ErrorCode::DeadlineExceeded;
  return ErrorCode::Unavailable;
}

std::string host_identity() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) name[0] = '\0';
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  return std::string(name.data()) + "/" + boot;
}

}  // namespace braid::ps
