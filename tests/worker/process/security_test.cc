// Which jobs are let run with what proof.
#include "worker/process/security.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "proto/job.pb.h"
#include "tests/support/message_of.h"

namespace braid::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

class JobSecurityTest : public ::testing::Test {
 protected:
  JobSecurityTest() {
    for (const char* name : {"BRAID_TOKEN", "BRAID_TOKEN_FILE"}) ::unsetenv(name);
    job_.mutable_strategy()->set_kind(proto::Strategy::PS);
  }
  ~JobSecurityTest() override {
    for (const char* name : {"BRAID_TOKEN", "BRAID_TOKEN_FILE"}) ::unsetenv(name);
  }
  comm::Security security(const std::string& cluster, const std::string& task = "worker:0") const {
    launch::LaunchFlags flags;
    flags.cluster = cluster;
    flags.task = task;
    return job_security(job_, launch::resolve_cluster({}, flags), WaitContext::with_timeout(10s));
  }
  std::string refusal(const std::string& cluster) const {
    return message_of([&] { security(cluster); });
  }
  proto::Job job_;
};

constexpr const char* kFar = "worker=a:1,b:1;ps=a:2";
constexpr const char* kNear = "worker=localhost:1,127.0.0.1:2;ps=[::1]:3";

TEST_F(JobSecurityTest, AJobThatOthersCanReachNeedsAProof) {
  EXPECT_THAT(refusal(kFar),
              AllOf(HasSubstr("ps 0 at a:2 can be reached from beyond this host"), HasSubstr("BRAID_TOKEN"),
                    HasSubstr("strategy.tls"), HasSubstr("strategy.insecure: true")));
  job_.mutable_strategy()->set_kind(proto::Strategy::ALLREDUCE);
  EXPECT_THAT(refusal("worker=127.0.0.1:1,b:1"), HasSubstr("worker 1 at b:1 can be reached"));
}

TEST_F(JobSecurityTest, TheWaysOutAreTaken) {
  ::setenv("BRAID_TOKEN", "a text of more than sixteen characters", 1);
  EXPECT_FALSE(security(kFar).open());
  ::unsetenv("BRAID_TOKEN");
  job_.mutable_strategy()->set_insecure(true);
  EXPECT_TRUE(security(kFar).open());
  job_.mutable_strategy()->set_insecure(false);
  job_.mutable_strategy()->mutable_tls()->set_certificate_file("x");
  EXPECT_TRUE(security(kFar).has_tls());
}

TEST_F(JobSecurityTest, WhatStaysOnTheHostNeedsNone) {
  EXPECT_TRUE(security(kNear).open());
  job_.mutable_strategy()->set_kind(proto::Strategy::ALLREDUCE);
  EXPECT_TRUE(security("worker=localhost:1,127.0.0.1:2").open());
  job_.mutable_strategy()->set_backend(proto::Strategy::MPI);
  EXPECT_TRUE(security("worker=a:1,b:1").open()) << "MPI has connections of its own";
}

TEST_F(JobSecurityTest, TheFirstTokenCounts) {
  const std::string file = ::testing::TempDir() + "braid-token-" + std::to_string(getpid());
  std::ofstream(file) << "the text that stands in the file\n";
  ::setenv("BRAID_TOKEN", "the text of the environment", 1);
  EXPECT_EQ(security(kNear).token.text(), "the text of the environment");
  ::setenv("BRAID_TOKEN_FILE", file.c_str(), 1);
  EXPECT_EQ(security(kNear).token.text(), "the text that stands in the file");
  job_.mutable_strategy()->set_token_file("/nowhere/token");
  EXPECT_THAT(refusal(kNear), HasSubstr("strategy.token_file '/nowhere/token' cannot be read: No such file"));
  std::filesystem::remove(file);
}

TEST_F(JobSecurityTest, AShortTokenIsRefusedWithoutBeingTold) {
  ::setenv("BRAID_TOKEN", "hunter2", 1);
  EXPECT_THAT(refusal(kNear),
              AllOf(HasSubstr("BRAID_TOKEN: a job token has 16 to"), Not(HasSubstr("hunter2"))));
}

}  // namespace
}  // namespace braid::worker
