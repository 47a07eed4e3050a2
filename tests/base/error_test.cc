#include "base/error.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <system_error>

#include "base/dtype.h"
#include "base/wait_context.h"
#include "tests/support/expect_error.h"

namespace braid {
namespace {

using namespace std::chrono_literals;

constexpr ErrorCode kAllCodes[] = {
    ErrorCode::InvalidArgument, ErrorCode::Unavailable, ErrorCode::DeadlineExceeded,
    ErrorCode::OutOfMemory,     ErrorCode::DeviceError, ErrorCode::DataLoss,
    ErrorCode::Internal,        ErrorCode::Cancelled,   ErrorCode::OutOfRange};

TEST(ErrorTest, ARecordIsThrownAsItsTypeAndCapturedAsItself) {
  for (ErrorCode code : kAllCodes) {
    ErrorPtr captured;
    try {
      throw_error(*make_error(code, "why"));
    } catch (const std::exception&) {
      captured = capture_current_exception("node 'a'");
    }
    EXPECT_EQ(captured->code, code);
    EXPECT_EQ(captured->message, "node 'a': why");
  }
  EXPECT_ERROR(throw_error(ErrorCode::DataLoss, "cut"), DataLoss, "cut");
  EXPECT_THROW(throw_error(ErrorCode::DataLoss, "cut"), DataLoss);
}

TEST(ErrorTest, ForeignExceptionsBecomeRecords) {
  const auto capture = [](auto throwing) {
    try {
      throwing();
    } catch (...) {
      return capture_current_exception();
    }
    return make_error(ErrorCode::Internal, "nothing was thrown");
  };
  EXPECT_EQ(capture([] { throw std::bad_alloc(); })->code, ErrorCode::OutOfMemory);
  const ErrorPtr no_thread = capture(
      [] { throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again)); });
  EXPECT_EQ(no_thread->code, ErrorCode::OutOfMemory);
  EXPECT_THAT(no_thread->message, testing::HasSubstr("ulimit -u"));
  EXPECT_EQ(capture([] { throw std::runtime_error("x"); })->message, "x");
  EXPECT_EQ(capture([] { throw 1; })->message, "unknown exception");
}

TEST(ErrorTest, ExitCodesSayWhatToDo) {
  EXPECT_EQ(exit_code_for(ErrorCode::InvalidArgument), 2);
  EXPECT_EQ(exit_code_for(ErrorCode::DataLoss), 2);
  EXPECT_EQ(exit_code_for(ErrorCode::Unavailable), 138);
  EXPECT_EQ(exit_code_for(ErrorCode::DeadlineExceeded), 138);
  EXPECT_EQ(exit_code_for(ErrorCode::DeviceError), 138);
  EXPECT_EQ(exit_code_for(ErrorCode::Internal), 1);
  EXPECT_EQ(exit_code_for(ErrorCode::OutOfMemory), 1);
}

TEST(WaitContextTest, CheckSaysWhyAWaitEnds) {
  WaitContext::with_timeout(20s).check("pull");
  EXPECT_ERROR(WaitContext::with_timeout(-1s).check("pull"), DeadlineExceeded, "pull: deadline exceeded");
  std::stop_source stop;
  const auto context = WaitContext::with_timeout(20s, stop.get_token());
  EXPECT_FALSE(context.stopped());
  stop.request_stop();
  EXPECT_ERROR(context.check("pull"), Cancelled, "pull: cancelled");
}

TEST(WaitContextTest, AHugeTimeoutIsFarAwayAndANarrowerOneIsKept) {
  const auto forever = WaitContext::with_timeout(std::chrono::nanoseconds::max());
  EXPECT_FALSE(forever.expired());
  EXPECT_GT(forever.remaining(), 24h);
  EXPECT_LE(forever.at_most(1s).remaining(), 1s);
  EXPECT_LE(WaitContext::with_timeout(1s).at_most(1h).remaining(), 1s);
  EXPECT_EQ(WaitContext::with_timeout(-1h).remaining(), 0ns);
}

TEST(DTypeTest, NamesAndSizesAreThoseOfTensorFlow) {
  EXPECT_EQ(dtype_size(DType::Float32), 4U);
  EXPECT_EQ(dtype_size(DType::BFloat16), 2U);
  EXPECT_EQ(dtype_size(DType::String), 0U);
  EXPECT_EQ(dtype_name(DType::Invalid), "invalid");
  EXPECT_EQ(dtype_from_name("double"), DType::Float64);
  EXPECT_EQ(dtype_from_name(""), std::nullopt);
  for (int number = 1; number <= 23; ++number) {
    const auto dtype = static_cast<DType>(number);
    if (dtype_name(dtype) == "invalid") continue;
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
    EXPECT_FALSE(is_integer(dtype) && is_floating(dtype));
  }
  EXPECT_EQ(dtype_of<float>, DType::Float32);
}

}  // namespace
}  // namespace braid
