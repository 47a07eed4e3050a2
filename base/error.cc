#include "base/error.h"

#include <new>
#include <system_error>

namespace braid {

std::string_view error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::InvalidArgument:
      return "InvalidArgument";
    case ErrorCode::Unavailable:
      return "Unavailable";
    case ErrorCode::DeadlineExceeded:
      return "DeadlineExceeded";
    case ErrorCode::OutOfMemory:
      return "OutOfMemory";
    case ErrorCode::DeviceError:
      return "DeviceError";
    case ErrorCode::DataLoss:
      return "DataLoss";
    case ErrorCode::Internal:
      return "Internal";
    case ErrorCode::Cancelled:
      return "Cancelled";
    case ErrorCode::OutOfRange:
      return "OutOfRange";
  }
  return "Unknown";
}

Error::Error(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}
Error::Error(const Error& other) = default;
Error& Error::operator=(const Error& other) = default;
Error::~Error() = default;
const char* Error::what() const noexcept { return message_.c_str(); }

#define BRAID_DEFINE_ERROR(Name)                                                  \
  Name::Name(std::string message) : Error(ErrorCode::Name, std::move(message)) {} \
  Name::Name(const Name& other) = default;                                        \
  Name& Name::operator=(const Name& other) = default;                             \
  Name::~Name() = default;
BRAID_DEFINE_ERROR(InvalidArgument)
BRAID_DEFINE_ERROR(Unavailable)
BRAID_DEFINE_ERROR(DeadlineExceeded)
BRAID_DEFINE_ERROR(OutOfMemory)
BRAID_DEFINE_ERROR(DeviceError)
BRAID_DEFINE_ERROR(DataLoss)
BRAID_DEFINE_ERROR(Internal)
BRAID_DEFINE_ERROR(Cancelled)
BRAID_DEFINE_ERROR(OutOfRange)
#undef BRAID_DEFINE_ERROR

ErrorPtr make_error(ErrorCode code, std::string message) {
  return std::make_shared<const ErrorRecord>(ErrorRecord{code, std::move(message)});
}

ErrorPtr capture_current_exception(std::string_view context) {
  auto with_context = [&](std::string_view message) {
    return context.empty() ? std::string(message) : std::string(context) + ": " + std::string(message);
  };
  try {
    throw;
  } catch (const Error& e) {
    return make_error(e.code(), with_context(e.message()));
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::OutOfMemory, with_context("out of host memory"));
  } catch (const std::system_error& e) {
    if (e.code() != std::errc::resource_unavailable_try_again)
      return make_error(ErrorCode::Internal, with_context(e.what()));
    return make_error(ErrorCode::OutOfMemory,  // what std::thread throws
                      with_context("the system gives no further thread: a limit of processes (ulimit -u, "
                                   "pids of a container) or of memory (ulimit -v) is reached"));
  } catch (const std::exception& e) {
    return make_error(ErrorCode::Internal, with_context(e.what()));
  } catch (...) {
    return make_error(ErrorCode::Internal, with_context("unknown exception"));
  }
}

void throw_error(const ErrorRecord& record) { throw_error(record.code, record.message); }

void throw_error(ErrorCode code, std::string message) {
  switch (code) {
    case ErrorCode::InvalidArgument:
      throw InvalidArgument(std::move(message));
    case ErrorCode::Unavailable:
      throw Unavailable(std::move(message));
    case ErrorCode::DeadlineExceeded:
      throw DeadlineExceeded(std::move(message));
    case ErrorCode::OutOfMemory:
      throw OutOfMemory(std::move(message));
    case ErrorCode::DeviceError:
      throw DeviceError(std::move(message));
    case ErrorCode::DataLoss:
      throw DataLoss(std::move(message));
    case ErrorCode::Cancelled:
      throw Cancelled(std::move(message));
    case ErrorCode::OutOfRange:
      throw OutOfRange(std::move(message));
    case ErrorCode::Internal:
      break;
  }
  throw Internal(std::move(message));
}

int exit_code_for(ErrorCode code) {
  switch (code) {
    case ErrorCode::InvalidArgument:
    case ErrorCode::DataLoss:
      return kExitBadInput;
    case ErrorCode::Unavailable:
    case ErrorCode::DeadlineExceeded:
    case ErrorCode::DeviceError:
      return kExitPeerLost;
    default:
      return kExitFailed;
  }
}

}  // namespace braid
