// What a run whose loss is no number says: the step, likely causes, and the fields that mend them.
#include "worker/run/finite_loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "proto/job.pb.h"
#include "tests/support/message_of.h"

namespace braid::worker {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::string said(const proto::Job& job, std::uint64_t step, float loss) {
  return message_of<Diverged>([&] { require_finite_loss(job, step, loss, 1e30); });
}

TEST(FiniteLossTest, NamesTheStepTheRateAndWhatIsNotSet) {
  proto::Job job;
  EXPECT_THAT(
      said(job, 7, -kNan),
      AllOf(HasSubstr("step 7: the loss is NaN"), HasSubstr("optimizer.learning_rate is too large (1e+30"),
            HasSubstr("optimizer.clip_norm: 1"), HasSubstr("schedule.warmup_steps"),
            HasSubstr("scaling: STANDARD"), HasSubstr("--check-numerics")));
  job.mutable_optimizer()->set_clip_value(1);
  job.mutable_schedule()->set_warmup_steps(10);
  EXPECT_THAT(said(job, 7, -std::numeric_limits<float>::infinity()),
              AllOf(HasSubstr("the loss is infinite"), Not(HasSubstr("clip")), Not(HasSubstr("warm"))));
}

TEST(FiniteLossTest, BlamesNoUpdateBeforeTheFirst) {
  EXPECT_THAT(said({}, 0, kNan), AllOf(HasSubstr("step 0: the loss is NaN"), Not(HasSubstr("learning_rate")),
                                       HasSubstr("initial")));
}

TEST(FiniteLossTest, FiniteLossesPass) {
  EXPECT_NO_THROW(require_finite_loss({}, 3, std::numeric_limits<float>::max(), 0.1));
}

}  // namespace
}  // namespace braid::worker
