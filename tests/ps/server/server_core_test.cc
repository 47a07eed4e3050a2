#include <gmock/gmock.h>

#include <bit>
#include <map>

#include "base/metrics.h"
#include "tests/ps/server/core_fixture.h"
#include "tests/support/message_of.h"

namespace braid::ps {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

class ServerCoreTest : public CoreFixture {};

bool ready(std::future<PullAnswer>& f, std::chrono::milliseconds wait) {
  return f.wait_for(wait) == std::future_status::ready;
}

TEST_F(ServerCoreTest, APullIsParkedUntilItsRoundIsApplied) {
  start_core(2, Consistency::Bsp);
  start_job();
  EXPECT_EQ(push(push_job(1, 0, 2.0F)).result, PushResult::Applied);
  auto parked = pull_async(0, 1);
  EXPECT_FALSE(ready(parked, std::chrono::milliseconds(20)));
  EXPECT_EQ(first_value(0, 0), 0.0F) << "the version before is there";
  push(push_job(0, 0, 1.0F));
  const PullAnswer answer = parked.get();
  EXPECT_EQ(answer.pieces[0][0], -3.0F);
  EXPECT_EQ(answer.version, 1U);
  EXPECT_EQ(count(Count::PullsParked), 1U);
  EXPECT_EQ(count(Count::Rounds), 2U) << "one for each table";
}

TEST_F(ServerCoreTest, AVoteToStopIsHeardByAllInTheSameVersion) {
  start_core(2, Consistency::Bsp);
  start_job();
  PushJob vote = push_job(1, 1, 1.0F);
  vote.votes_to_stop = true;
  push(push_job(0, 0, 1.0F));
  push(push_job(1, 0, 1.0F));
  push(std::move(vote));
  EXPECT_FALSE(pull_async(0, 1).get().stop) << "the round of the vote is not over";
  push(push_job(0, 1, 1.0F));
  EXPECT_FALSE(pull_async(1, 1).get().stop) << "nor is it for who asks for the version before";
  EXPECT_TRUE(pull_async(0, 2).get().stop);
  EXPECT_TRUE(pull_async(1, 2).get().stop);
}

TEST_F(ServerCoreTest, AVoteToFinishIsHeardByAllInTheSameVersionAndAsksNobodyToStop) {
  start_core(2, Consistency::Bsp);
  start_job();
  PushJob vote = push_job(0, 0, 1.0F);
  vote.votes_to_finish = true;
  push(std::move(vote));
  push(push_job(1, 0, 1.0F));
  EXPECT_FALSE(pull_async(0, 0).get().finish);
  for (int worker : {0, 1}) {
    const PullAnswer answer = pull_async(worker, 1).get();
    EXPECT_TRUE(answer.finish);
    EXPECT_FALSE(answer.stop);
  }
}

TEST_F(ServerCoreTest, AVoteToFinishIsHeardByAsynchronousWorkersAtOnce) {
  start_core(2, Consistency::Asp);
  start_job();
  PushJob stop = push_job(0, 0, 1.0F), finish = push_job(0, 1, 1.0F);
  stop.votes_to_stop = true;
  push(std::move(stop));
  EXPECT_FALSE(pull_async(1, 0).get().stop) << "each stops by itself";
  finish.votes_to_finish = true;
  push(std::move(finish));
  EXPECT_TRUE(pull_async(1, 0).get().finish);
}

TEST_F(ServerCoreTest, AServerThatIsToEndIsHeardByAllInTheSameVersion) {
  start_core(2, Consistency::Bsp);
  start_job();
  for (int worker : {0, 1}) push(push_job(worker, 0, 1.0F));
  EXPECT_FALSE(pull_async(0, 1).get().stop);
  core_->vote_to_stop();
  EXPECT_FALSE(pull_async(1, 1).get().stop) << "worker 0 has not heard it with this version";
  for (int worker : {0, 1}) push(push_job(worker, 1, 1.0F));
  EXPECT_TRUE(pull_async(0, 2).get().stop);
  EXPECT_TRUE(pull_async(1, 2).get().stop);
}

TEST_F(ServerCoreTest, AServerThatIsToEndTellsAsynchronousWorkersAtOnce) {
  start_core(2, Consistency::Asp);
  start_job();
  EXPECT_FALSE(pull_async(0, 0).get().stop);
  core_->vote_to_stop();
  EXPECT_TRUE(pull_async(0, 0).get().stop);
  EXPECT_TRUE(pull_async(1, 0).get().stop);
}

TEST_F(ServerCoreTest, ItServesWorkersWhileTheyTakePartInAStartedJob) {
  start_core(2, Consistency::Bsp);
  EXPECT_FALSE(core_->serves_workers()) << "nothing to save";
  start_job();
  EXPECT_TRUE(core_->serves_workers());
  core_->leave(sender(0));
  EXPECT_TRUE(core_->serves_workers());
  ASSERT_EQ(core_->heard(sender(1), 17), nullptr);
  core_->disconnected(17);
  EXPECT_FALSE(core_->serves_workers()) << "one has left, the other is lost";
}

TEST_F(ServerCoreTest, AWorkerInThePlaceOfALostOneGoesOnWithTheRound) {
  start_core(2, Consistency::Bsp);
  start_job();
  PushJob dense_only = push_job(1, 0, 1.0F);
  dense_only.sparse.clear();
  EXPECT_EQ(push(std::move(dense_only)).result, PushResult::Applied);
  push(push_job(0, 0, 2.0F));
  EXPECT_EQ(first_value(0, 1), -3.0F) << "the round of the dense table is over, the sparse one's is open";

  lose(1);
  enter(1, 777);
  const auto of_new_process = [&](PushJob job) {
    job.sender.session = 777;
    return push(std::move(job));
  };
  PullJob first;
  first.sender = sender(1);
  first.sender.session = 777;
  std::promise<PullAnswer> answer;
  first.done = [&](PullAnswer a) { answer.set_value(std::move(a)); };
  core_->pull(std::move(first));
  EXPECT_EQ(answer.get_future().get().version, 0U) << "the oldest round that a table waits for";

  dense_only = push_job(1, 0, 1.0F);
  dense_only.sparse.clear();
  EXPECT_EQ(of_new_process(std::move(dense_only)).result, PushResult::Dropped);
  PushJob sparse_only = push_job(1, 0, 1.0F, 1);
  sparse_only.dense.clear();
  EXPECT_EQ(of_new_process(std::move(sparse_only)).result, PushResult::Applied);

  EXPECT_EQ(of_new_process(push_job(1, 1, 1.0F)).result, PushResult::Applied);
  lose(1, 777);
  enter(1, 778);
  PushJob again = push_job(1, 1, 1.0F);
  again.sender.session = 778;
  EXPECT_EQ(push(std::move(again)).result, PushResult::Duplicate) << "the process before has pushed it";
  push(push_job(0, 1, 2.0F));
  EXPECT_EQ(first_value(0, 2), -6.0F) << "each worker's gradient once";
}

TEST_F(ServerCoreTest, WhoWasAtAnotherStepIsToldAtOnceThatARestorePutTheJobBack) {
  start_core(3, Consistency::Bsp);
  start_job();
  EXPECT_EQ(first_value(1, 0), 0.0F);
  auto parked = pull_async(1, 1);
  core_->adopt(sender(0), core_->fresh_tables(sender(0)), 0, {});
  const PullAnswer told = parked.get();
  ASSERT_NE(told.error, nullptr);
  EXPECT_EQ(told.error->code, ErrorCode::Unavailable);
  EXPECT_THAT(told.error->message,
              HasSubstr("a restore has put the job back to step 0, and worker 1 was at another"));
  ASSERT_NE(push(push_job(1, 0, 1.0F)).error, nullptr);
  EXPECT_EQ(first_value(2, 0), 0.0F) << "it had not begun";
  enter(1, 777);
  PushJob again = push_job(1, 0, 1.0F);
  again.sender.session = 777;
  EXPECT_EQ(push(std::move(again)).result, PushResult::Applied);
}

TEST_F(ServerCoreTest, TablesHaveRoundsOfTheirOwn) {
  start_core(1, Consistency::Bsp);
  start_job();
  PushJob dense_only = push_job(0, 0, 1.0F);
  dense_only.sparse.clear();
  push(std::move(dense_only));
  EXPECT_EQ(first_value(0, 1), -1.0F) << "does not wait for the sparse table's round";
}

TEST_F(ServerCoreTest, ARepeatedPushAppliesOnce) {
  for (Consistency consistency : {Consistency::Bsp, Consistency::Asp}) {
    start_core(1, consistency);
    start_job();
    EXPECT_EQ(push(push_job(0, 0, 1.0F)).result, PushResult::Applied);
    for (int again = 0; again < 3; ++again)
      EXPECT_EQ(push(push_job(0, 0, 1.0F)).result, PushResult::Duplicate);
    EXPECT_EQ(first_value(0, 1), -1.0F);
    EXPECT_EQ(count(Count::PushesApplied), 1U);
    EXPECT_EQ(count(Count::PushesDuplicate), 3U);
  }
}

TEST_F(ServerCoreTest, AspAppliesStepsInAnyOrderEachOnce) {
  start_core(2, Consistency::Asp);
  start_job();
  for (std::uint64_t step : {3, 1, 2, 0, 1, 3}) push(push_job(1, step, 1.0F));
  EXPECT_EQ(first_value(0, 0), -4.0F);
  EXPECT_EQ(count(Count::PushesApplied), 4U);
}

TEST_F(ServerCoreTest, ALatePushIsDroppedWithItsReasonAndCounted) {
  start_core(2, Consistency::Bsp);
  start_job();
  core_->leave(sender(0));
  push(push_job(1, 0, 1.0F));
  EXPECT_EQ(first_value(1, 1), -1.0F);
  const PushAnswer late = push(push_job(1, 0, 1.0F, 7));
  EXPECT_EQ(late.error, nullptr);
  EXPECT_EQ(late.result, PushResult::Dropped);
  EXPECT_EQ(late.reason, "round 0 of table 'w' is over");
  EXPECT_EQ(count(Count::PushesDropped), 1U);
  EXPECT_EQ(first_value(1, 1), -1.0F);
}

TEST_F(ServerCoreTest, ParametersOfARoundMustAgree) {
  start_core(2, Consistency::Bsp);
  start_job();
  push(push_job(0, 0, 1.0F));
  PushJob other = push_job(1, 0, 1.0F);
  other.params.learning_rate = 0.5F;
  const PushAnswer refused = push(std::move(other));
  ASSERT_NE(refused.error, nullptr);
  EXPECT_EQ(refused.error->code, ErrorCode::InvalidArgument);
  EXPECT_THAT(refused.error->message, HasSubstr("worker 1 has (learning rate 0.5"));
  EXPECT_EQ(push(push_job(1, 0, 1.0F)).result, PushResult::Applied) << "a refused push changed nothing";
}

TEST_F(ServerCoreTest, ALostWorkerIsNamedToThoseWhoWaitForItsRound) {
  start_core(2, Consistency::Bsp);
  start_job();
  EXPECT_EQ(core_->heard(sender(1), 77), nullptr);
  push(push_job(0, 0, 1.0F));
  auto parked = pull_async(0, 1);
  const auto now = Clock::now();
  core_->disconnected(77);
  core_->tick(now + kHeartbeatTimeout / 2);
  EXPECT_FALSE(ready(parked, std::chrono::milliseconds(1))) << "it may come back";
  core_->heard(sender(0), 0);
  core_->tick(now + kHeartbeatTimeout * 3);
  ASSERT_TRUE(ready(parked, std::chrono::milliseconds(1)));
  const PullAnswer answer = parked.get();
  EXPECT_EQ(answer.error->code, ErrorCode::Unavailable);
  EXPECT_THAT(answer.error->message,
              AllOf(HasSubstr("worker 1 (10.0.0.1:4000) lost: its connection closed "),
                    ContainsRegex("closed [4-6][0-9]\\.[0-9] s ago; round 0 of table 'w' waits for it")));
}

TEST_F(ServerCoreTest, ASilentWorkerIsNamedAndALateOneIsNotCalledLost) {
  start_core(2, Consistency::Bsp);
  start_job();
  push(push_job(0, 0, 1.0F));
  auto silent = pull_async(0, 1);
  core_->tick(Clock::now() + kHeartbeatTimeout * 3);
  EXPECT_THAT(silent.get().error->message, AllOf(HasSubstr("worker 1 (10.0.0.1:4000) lost: silent for "),
                                                 ContainsRegex("silent for [6-9][0-9]\\.[0-9] s")));
  auto late = pull_async(0, 1, std::chrono::milliseconds(1));
  core_->heard(sender(1), 0);
  core_->tick(Clock::now() + std::chrono::milliseconds(2));
  const PullAnswer answer = late.get();
  EXPECT_EQ(answer.error->code, ErrorCode::DeadlineExceeded);
  EXPECT_THAT(answer.error->message,
              HasSubstr("worker 1 (10.0.0.1:4000) is late; round 0 of table 'w' waits for it"));
}

TEST_F(ServerCoreTest, AspGoesOnWithoutALostWorker) {
  start_core(2, Consistency::Asp);
  start_job();
  core_->heard(sender(1), 77);
  core_->disconnected(77);
  for (std::uint64_t step = 0; step < 5; ++step) {
    EXPECT_EQ(push(push_job(0, step, 1.0F)).error, nullptr);
    EXPECT_EQ(first_value(0, step + 1), -static_cast<float>(step + 1));
  }
}

TEST_F(ServerCoreTest, RoundsDoNotWaitForAWorkerThatLeft) {
  start_core(3, Consistency::Bsp);
  start_job();
  push(push_job(0, 0, 1.0F));
  push(push_job(1, 0, 1.0F));
  auto parked = pull_async(0, 1);
  EXPECT_FALSE(ready(parked, std::chrono::milliseconds(10)));
  core_->leave(sender(2));
  EXPECT_EQ(parked.get().pieces[0][0], -2.0F);
  const PushAnswer refused = push(push_job(2, 1, 1.0F));
  EXPECT_THAT(refused.error->message, HasSubstr("worker 2 has left and cannot push"));
}

TEST_F(ServerCoreTest, PullsWaitForInitialValuesAndSayWhoOwesThem) {
  start_core(2, Consistency::Asp);
  auto parked = pull_async(1, 0, std::chrono::milliseconds(1));
  auto patient = pull_async(1, 0);
  core_->tick(Clock::now() + std::chrono::milliseconds(5));
  const PullAnswer answer = parked.get();
  EXPECT_EQ(answer.error->code, ErrorCode::DeadlineExceeded);
  EXPECT_THAT(answer.error->message,
              HasSubstr("initial values are neither set nor restored; it is for worker 0 to do"));
  EXPECT_THAT(push(push_job(1, 0, 1.0F)).error->message, HasSubstr("before the initial values"));
  start_job();
  EXPECT_EQ(patient.get().error, nullptr);
}

TEST_F(ServerCoreTest, StartNamesTablesWithoutValuesAndASecondStartIsRefused) {
  start_core(2, Consistency::Bsp);
  EXPECT_THAT(message_of([&] { core_->start(sender(0), 0); }), HasSubstr("no initial values for w"));
  start_job();
  EXPECT_NO_THROW(core_->start(sender(0), 0)) << "a retry of the same process";
  EXPECT_THROW(core_->start(sender(1), 0), InvalidArgument);
  auto done = std::make_shared<std::promise<ErrorPtr>>();
  const std::vector<float> values(10);
  core_->assign({sender(0), {{0, values}}, nullptr, [done](ErrorPtr e) { done->set_value(std::move(e)); }});
  EXPECT_THAT(done->get_future().get()->message, HasSubstr("has its initial values already"));
}

TEST_F(ServerCoreTest, MessagesForAnotherInstanceOrIncarnationAreRefused) {
  start_core(1, Consistency::Asp);
  start_job();
  PushJob old_instance = push_job(0, 0, 1.0F);
  old_instance.sender.instance ^= 1;
  const PushAnswer refused = push(std::move(old_instance));
  EXPECT_EQ(refused.error->code, ErrorCode::Unavailable);
  EXPECT_THAT(refused.error->message, HasSubstr("the server was started again and its state is gone"));
  PushJob old_incarnation = push_job(0, 0, 1.0F);
  old_incarnation.sender.incarnation = 0;
  EXPECT_THAT(push(std::move(old_incarnation)).error->message,
              HasSubstr("belongs to incarnation 0 of job 'job', which is at 1"));
  EXPECT_EQ(count(Count::PushesApplied), 0U);
  EXPECT_EQ(first_value(0, 0), 0.0F);
}

TEST_F(ServerCoreTest, AHigherIncarnationBeginsWithEmptyTables) {
  start_core(1, Consistency::Asp);
  start_job();
  push(push_job(0, 0, 1.0F));
  lose(0);
  enter(0, 500, 2);
  Sender next = sender(0);
  next.incarnation = 2;
  next.session = 500;
  EXPECT_THROW(core_->fresh_tables(next), InvalidArgument);
  core_->create_tables(next, set_);
  EXPECT_FALSE(core_->started());
  EXPECT_THROW(enter(0, 100, 1), Unavailable) << "the old incarnation cannot come back";
}

TEST_F(ServerCoreTest, ANewProcessOfAWorkerTakesItsPlace) {
  start_core(2, Consistency::Asp);
  start_job();
  push(push_job(1, 5, 1.0F));
  lose(1);
  enter(1, 900);
  EXPECT_THAT(push(push_job(1, 6, 1.0F)).error->message,
              HasSubstr("worker 1 was replaced by another process"));
  PushJob again = push_job(1, 5, 1.0F);
  again.sender.session = 900;
  EXPECT_EQ(push(std::move(again)).result, PushResult::Applied) << "another process counts its own steps";
}

TEST_F(ServerCoreTest, AWorkerThatIsAliveKeepsItsPlace) {
  start_core(2, Consistency::Asp);
  start_job();
  const auto refusal = [&](int worker, std::uint64_t incarnation) {
    return message_of<Unavailable>([&] { enter(worker, 900, incarnation); });
  };
  EXPECT_THAT(refusal(1, 1), HasSubstr("worker 1 (10.0.0.1:4000) is alive, but another process"));
  EXPECT_THAT(refusal(0, 2), HasSubstr("begins incarnation 2 of job 'job' while worker 0 (10.0.0.0:4000) of "
                                       "incarnation 1 is alive"));
  EXPECT_EQ(push(push_job(1, 0, 1.0F)).error, nullptr) << "it is undisturbed";
  EXPECT_NO_THROW(enter(1, 101)) << "the same process again";
}

TEST_F(ServerCoreTest, AnIncarnationIsNeverFarBeyondTheLast) {
  start_core(1, Consistency::Asp);
  lose(0);
  EXPECT_THAT(message_of<InvalidArgument>([&] { enter(0, 900, ~std::uint64_t{0}); }),
              HasSubstr("it may be at most 1000 higher"));
  EXPECT_NO_THROW(enter(0, 900, 2)) << "later ones still get in";
}

TEST_F(ServerCoreTest, WhatPeersNameIsBounded) {
  start_core(1, Consistency::Asp);
  const auto message = [&](const Registration& r) {
    return message_of<InvalidArgument>([&] { core_->enter(r); });
  };
  EXPECT_THAT(message({"job", 2, 0, 30'000'000, 0, 1, 1, "a"}), HasSubstr("a job 65536 workers"));
  EXPECT_THAT(message({std::string(2000, 'x'), 1, 0, 1, 0, 1, 1, "a"}), HasSubstr("at most 1024 bytes"));
  TableSet wide = set_;
  wide.sparse[0].dim = std::int64_t{1} << 40;
  EXPECT_THROW(core_->create_tables(sender(0), wide), InvalidArgument);
  TableSet large = set_;
  large.dense[0].elements = std::int64_t{1} << 50;
  EXPECT_THAT(message_of<OutOfMemory>([&] { core_->create_tables(sender(0), large); }),
              HasSubstr("this process may use"));
}

TEST_F(ServerCoreTest, OnlyWorker0SetsValuesAndEndsTheJob) {
  start_core(2, Consistency::Asp);
  start_job();
  EXPECT_NO_THROW(core_->require_leader(sender(0)));
  EXPECT_THAT(message_of<InvalidArgument>([&] { core_->require_leader(sender(1)); }),
              HasSubstr("worker 1 asks for what only worker 0 may"));
}

TEST_F(ServerCoreTest, WhoWaitsForTheValuesOfALostLeaderHearsOfIt) {
  start_core(2, Consistency::Asp);
  auto parked = pull_async(1, 0);
  lose(0);
  core_->tick(Clock::now() + kHeartbeatTimeout / 2);
  EXPECT_EQ(parked.wait_for(std::chrono::seconds(0)), std::future_status::timeout) << "it may come back";
  core_->heard(sender(1), 0);
  core_->tick(Clock::now() + kHeartbeatTimeout + std::chrono::seconds(1));
  const PullAnswer answer = parked.get();
  ASSERT_NE(answer.error, nullptr);
  EXPECT_EQ(answer.error->code, ErrorCode::Unavailable);
  EXPECT_THAT(answer.error->message, HasSubstr("it is for worker 0 to do: worker 0 (10.0.0.0:4000) lost"));
}

TEST_F(ServerCoreTest, AJobThatIsStoppedBeforeItHasValuesIsCancelledForAll) {
  start_core(2, Consistency::Bsp);
  auto parked = pull_async(1, 0);
  EXPECT_TRUE(core_->stop_before_start("worker 0 was asked to stop"));
  const PullAnswer answer = parked.get();
  ASSERT_NE(answer.error, nullptr);
  EXPECT_EQ(answer.error->code, ErrorCode::Cancelled);
  EXPECT_THAT(answer.error->message, HasSubstr("worker 0 was asked to stop"));
  EXPECT_THROW(enter(1, 101), Cancelled) << "who comes later, too";
}

TEST_F(ServerCoreTest, AStartedJobIsNotCancelledByAnEarlyStop) {
  start_core(1, Consistency::Bsp);
  start_job();
  EXPECT_FALSE(core_->stop_before_start("worker 0 was asked to stop"));
  EXPECT_EQ(first_value(0, 0), 0.0F);
}

TEST_F(ServerCoreTest, AJobThatLostAnotherServerIsGivenUpForAll) {
  start_core(2, Consistency::Bsp);
  start_job();
  auto parked = pull_async(1, 1);
  core_->give_up_job("the job has lost server 1 (h:1), as worker 0 tells");
  const PullAnswer answer = parked.get();
  ASSERT_NE(answer.error, nullptr);
  EXPECT_EQ(answer.error->code, ErrorCode::Unavailable);
  EXPECT_THAT(answer.error->message, HasSubstr("has lost server 1 (h:1)"));
  EXPECT_NE(push(push_job(0, 0, 1.0F)).error, nullptr);
}

TEST_F(ServerCoreTest, IsIdleSinceTheLastWorkerWent) {
  start_core(1, Consistency::Asp);
  EXPECT_EQ(core_->idle(Clock::now()), Clock::duration::zero());
  core_->tick(Clock::now());
  lose(0);
  EXPECT_GE(core_->idle(Clock::now() + std::chrono::seconds(30)), std::chrono::seconds(30));
  enter(0, 900);
  EXPECT_EQ(core_->idle(Clock::now()), Clock::duration::zero());
}

TEST_F(ServerCoreTest, BadRegistrationsAreRefusedWithTheReason) {
  start_core(2, Consistency::Asp);
  auto message = [&](const Registration& r) { return message_of<Error>([&] { core_->enter(r); }); };
  EXPECT_THAT(message({"other", 1, 0, 2, 0, 1, 1, "a"}), HasSubstr("serves job 'job', not 'other'"));
  EXPECT_THAT(message({"job", 1, 0, 3, 0, 1, 1, "a"}), HasSubstr("counts 3 workers, job 'job' has 2"));
  EXPECT_THAT(message({"job", 1, 2, 2, 0, 1, 1, "a"}), HasSubstr("there is no worker 2 in a job of 2"));
  EXPECT_THAT(message({"job", 1, 0, 2, 1, 2, 1, "a"}),
              HasSubstr("takes this for server 1 of 2, but it is server 0 of 1"));
  EXPECT_EQ(message({"job", 1, kObserver, 2, 0, 1, 1, "a"}), "nothing was thrown");
}

TEST_F(ServerCoreTest, WorkersMustDeclareTheSameTables) {
  start_core(2, Consistency::Asp);
  EXPECT_NO_THROW(core_->create_tables(sender(1), set_));
  TableSet other = set_;
  other.optimizer.momentum = 0.5F;
  EXPECT_THROW(core_->create_tables(sender(1), other), InvalidArgument);
}

TEST_F(ServerCoreTest, BadPartsAreRefusedAndNothingIsHalfApplied) {
  start_core(1, Consistency::Asp);
  start_job();
  auto refused = [&](auto change) {
    PushJob job = push_job(0, 0, 1.0F);
    change(job);
    const PushAnswer answer = push(std::move(job));
    return answer.error ? answer.error->message : "accepted";
  };
  EXPECT_THAT(refused([](PushJob& j) { j.dense[0].values = j.dense[0].values.first(9); }),
              HasSubstr("holds 10 elements, got 9"));
  EXPECT_THAT(refused([](PushJob& j) { j.dense[0].table = 1; }), HasSubstr("holds no dense table 1"));
  EXPECT_THAT(refused([](PushJob& j) { j.dense.push_back(j.dense[0]); }),
              HasSubstr("table 'w' occurs twice in a push"));
  EXPECT_THAT(refused([](PushJob& j) { j.sparse[0].dim = 3; }), HasSubstr("its rows have 2 elements, not 3"));
  EXPECT_EQ(first_value(0, 0), 0.0F);
  EXPECT_EQ(push(push_job(0, 0, 1.0F)).result, PushResult::Applied);
  EXPECT_EQ(count(Count::RequestsRefused), 4U);
}

TEST_F(ServerCoreTest, RowsComeBackFromTheWorkerThatIsTheirHome) {
  const std::vector<std::int64_t> keys{7, 8};
  const std::vector<float> rows{1.5F, 2.5F, std::bit_cast<float>(30U), 3.5F, 4.5F, std::bit_cast<float>(20U)};
  const auto write = [&](std::uint32_t width) {
    std::promise<ErrorPtr> answer;
    core_->assign({sender(0),
                   {},
                   nullptr,
                   [&](ErrorPtr error) { answer.set_value(std::move(error)); },
                   {{0, width, keys, rows.data()}}});
    return answer.get_future().get();
  };
  start_core(1, Consistency::Bsp);
  start_job();
  EXPECT_THAT(write(3)->message, HasSubstr("tables whose home is no worker"));
  set_.cached = true;
  start_core(1, Consistency::Asp);
  start_job();
  EXPECT_THAT(write(2)->message, HasSubstr("its rows have 2 elements, not 1"));
  EXPECT_EQ(write(3), nullptr);
  const auto snapshot = core_->snapshot(sender(0), 31, WaitContext::with_timeout(std::chrono::seconds(10)));
  std::map<std::int64_t, std::pair<float, std::uint64_t>> found;
  const SparseRows all = snapshot->sparse(0);
  for (std::size_t i = 0; i < all.keys.size(); ++i)
    found[all.keys[i]] = {all.values[2 * i + 1], all.last_use[i]};
  EXPECT_EQ(found, (decltype(found){{7, {2.5F, 30U}}, {8, {4.5F, 20U}}}));
}

TEST_F(ServerCoreTest, CutWaitsForExactlyTheStepAndNamesTheLate) {
  start_core(2, Consistency::Bsp);
  start_job();
  push(push_job(0, 0, 1.0F));
  const std::string late = message_of<DeadlineExceeded>(
      [&] { core_->snapshot(sender(0), 1, WaitContext::with_timeout(std::chrono::milliseconds(20))); });
  EXPECT_THAT(late, HasSubstr("checkpoint of step 1"));
  EXPECT_THAT(late, HasSubstr("worker 1 (10.0.0.1:4000)"));
  push(push_job(1, 0, 1.0F));
  push(push_job(1, 1, 5.0F));
  const auto snapshot = core_->snapshot(sender(0), 1, WaitContext::with_timeout(std::chrono::seconds(60)));
  EXPECT_EQ(snapshot->dense(0, 0), std::vector<float>(10, -2.0F));
  push(push_job(0, 1, 1.0F));
  EXPECT_EQ(first_value(0, 2), -8.0F);
  EXPECT_EQ(snapshot->dense(0, 0), std::vector<float>(10, -2.0F)) << "the snapshot does not move";
  EXPECT_THROW(core_->snapshot(sender(0), 1, WaitContext::with_timeout(std::chrono::seconds(60))),
               InvalidArgument);
}

TEST_F(ServerCoreTest, CountersReachTheMetrics) {
  start_core(1, Consistency::Asp);
  start_job();
  MetricsRegistry registry;
  ServerCounters::publish(core_->counters(), registry, 4);
  push(push_job(0, 0, 1.0F));
  push(push_job(0, 0, 1.0F));
  const std::string text = registry.render();
  EXPECT_THAT(text, HasSubstr("braid_ps_pushes_total{result=\"applied\",server=\"4\"} 1"));
  EXPECT_THAT(text, HasSubstr("braid_ps_pushes_total{result=\"duplicate\",server=\"4\"} 1"));
}

}  // namespace
}  // namespace braid::ps
