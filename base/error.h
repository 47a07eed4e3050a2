// Errors: one exception type for each thing a catcher does, and the immutable record that carries an
// error across threads and streams. Owns no policy: what to do with an error is the catcher's business.
// Thread rule: everything here is safe from any thread; records are immutable and shared.
//
// Form of a message: `[Softmax] node 'head/softmax_3': expected rank >= 1, got []`.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <string_view>

namespace braid {

/// What a catcher does about an error. On the wire (ps.proto status): never renumber.
enum class ErrorCode : int {
  InvalidArgument = 1,   // the user fixes the input
  Unavailable = 2,       // a peer or server is gone: retry or rebuild
  DeadlineExceeded = 3,  // a wait passed its deadline
  OutOfMemory = 4,
  DeviceError = 5,  // the device context is lost
  DataLoss = 6,     // corrupt or truncated data
  Internal = 7,     // our bug
  Cancelled = 8,    // stopped because something else failed or was asked to stop
  OutOfRange = 9,   // the end of a sequence: an input has no more records
};

std::string_view error_code_name(ErrorCode code);

class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string message);
  Error(const Error& other);
  Error& operator=(const Error& other);
  ~Error() override;
  ErrorCode code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }
  const char* what() const noexcept override;

 private:
  ErrorCode code_;
  std::string message_;
};

#define BRAID_DEFINE_ERROR(Name)        \
  class Name : public Error {           \
   public:                              \
    explicit Name(std::string message); \
    Name(const Name& other);            \
    Name& operator=(const Name& other); \
    ~Name() override;                   \
  };
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

/// An error that travels with events and between threads. Never changed once made.
struct ErrorRecord {
  ErrorCode code;
  std::string message;
};
using ErrorPtr = std::shared_ptr<const ErrorRecord>;

ErrorPtr make_error(ErrorCode code, std::string message);

/// The exception in flight as a record; `context` is put in front of its message as "context: ".
/// REQUIRES: called inside a catch block. A foreign exception becomes Internal.
ErrorPtr capture_current_exception(std::string_view context = {});

/// Throws a fresh exception of the record's type. REQUIRES: record is not null.
[[noreturn]] void throw_error(const ErrorRecord& record);
[[noreturn]] void throw_error(ErrorCode code, std::string message);

/// Process exit code for an error that ends a job: 2 for InvalidArgument and DataLoss (configuration or
/// input), 138 for Unavailable, DeadlineExceeded and DeviceError (starting again may help), else 1.
int exit_code_for(ErrorCode code);

inline constexpr int kExitSuccess = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitBadInput = 2;
inline constexpr int kExitPeerLost = 138;
inline constexpr int kExitTerminated = 143;

}  // namespace braid
