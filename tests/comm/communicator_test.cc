// The conformance suite on the communicators whose ranks can be threads, and what is particular to each.
#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <latch>
#include <thread>

#include "comm/local/gated_communicator.h"
#include "comm/local/local_communicator.h"
#include "comm/make_communicator.h"
#include "comm/reduce.h"
#include "comm/rendezvous/in_process.h"
#include "comm/ring/ring_communicator.h"
#include "tests/comm/communicator_conformance.h"
#include "tests/comm/transport/tls_files.h"

namespace braid::comm {
namespace {

using namespace std::chrono_literals;
using conformance::soon;
using testing::HasSubstr;

enum class Kind { Local, Ring, TlsRing, TokenRing, GatedRing };

struct GroupCase {
  Kind kind;
  int size;
};

std::string name_of(const testing::TestParamInfo<GroupCase>& info) {
  const char* names[] = {"Local", "Ring", "TlsRing", "TokenRing", "GatedRing"};
  return names[static_cast<int>(info.param.kind)] + std::to_string(info.param.size);
}

/// Runs `body` on every rank of a new group, a thread a rank. Communicators live until all bodies have ended.
void run_group(const GroupCase& group, const std::function<void(Communicator&)>& body) {
  static TlsFiles tls;
  static const JobToken token = JobToken::random();
  std::vector<std::unique_ptr<Communicator>> ranks;
  if (group.kind == Kind::Local)
    ranks = make_local_group(group.size);
  else
    ranks.resize(group.size);
  auto store = std::make_shared<RendezvousStore>();
  const auto gate = std::make_shared<Gate>(group.size);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < group.size; ++rank)
    threads.emplace_back([&, rank] {
      if (group.kind != Kind::Local) {
        auto rendezvous = make_in_process_rendezvous(store, {"job", 1});
        RingOptions options;
        options.rank = rank;
        options.size = group.size;
        if (group.kind == Kind::TlsRing) options.security.tls = tls.options();
        if (group.kind == Kind::TokenRing) options.security.token = token;
        ranks[rank] = make_ring_communicator(options, *rendezvous, soon());
        if (group.kind == Kind::GatedRing)
          ranks[rank] = make_gated_communicator(std::move(ranks[rank]), gate, rank);
      }
      body(*ranks[rank]);
    });
}

class CommunicatorTest : public testing::TestWithParam<GroupCase> {};

TEST_P(CommunicatorTest, OperationsGiveTheClosedFormValues) {
  run_group(GetParam(), [](Communicator& comm) { conformance::check_operations(comm); });
}

TEST_P(CommunicatorTest, WrongUseIsRefusedAndBreaksTheCommunicator) {
  for (auto& use : conformance::wrong_uses()) {
    SCOPED_TRACE(use.name);
    run_group(GetParam(), [&](Communicator& comm) { conformance::check_wrong_use(comm, use); });
  }
}

TEST_P(CommunicatorTest, ARankThatDoesNotComeIsNamed) {
  run_group(GetParam(), [](Communicator& comm) { conformance::check_absence(comm); });
}

TEST_P(CommunicatorTest, ARankThatDoesNotComeToAnExchangeIsNamed) {
  run_group(GetParam(), [](Communicator& comm) { conformance::check_absence_from_all_to_all(comm); });
}

TEST_P(CommunicatorTest, ANumberThatTheOtherDoesNotExpectIsRefused) {
  if (GetParam().size == 1) return;
  run_group(GetParam(), [](Communicator& comm) {
    // Rank 0 sends one element more to the last rank than that one takes.
    std::vector<std::int64_t> sends(static_cast<std::size_t>(comm.size()), 3), receives = sends;
    if (comm.rank() == 0) ++sends.back();
    std::vector<float> input(3 * static_cast<std::size_t>(comm.size()) + 1), output(input.size());
    const auto call = [&] {
      comm.all_to_all(input.data(), sends, output.data(), receives, DType::Float32, StreamRef::host(),
                      soon());
      comm.barrier(soon());  // who was done with the exchange hears of it here
    };
    EXPECT_THAT(error_of<Error>(call), HasSubstr("calls all_to_all"));
    conformance::check_broken(comm);
  });
}

TEST_P(CommunicatorTest, RanksThatDisagreeAreTold) {
  if (GetParam().size == 1) return;
  auto disagree = [](Communicator& comm, const std::function<void(float*)>& first,
                     const std::function<void(float*)>& others) {
    std::vector<float> data(50000);
    auto text = error_of<InvalidArgument>([&] { (comm.rank() == 0 ? first : others)(data.data()); });
    EXPECT_THAT(text, HasSubstr("calls"));
    conformance::check_broken(comm);
  };
  run_group(GetParam(), [&](Communicator& comm) {
    auto reduce = [&](float* data, std::int64_t count) {
      comm.all_reduce(data, data, count, DType::Float32, ReduceOp::Sum, StreamRef::host(), soon());
    };
    disagree(
        comm, [&](float* data) { reduce(data, 1); }, [&](float* data) { reduce(data, 2); });
  });
  run_group(GetParam(), [&](Communicator& comm) {
    disagree(
        comm,
        [&](float* data) {
          comm.all_reduce(data, data, 50000, DType::Float32, ReduceOp::Max, StreamRef::host(), soon());
        },
        [&](float*) { comm.barrier(soon()); });
  });
}

TEST_P(CommunicatorTest, AbortEndsAPendingOperation) {
  if (GetParam().size == 1) return;
  run_group(GetParam(), [](Communicator& comm) {
    if (comm.rank() == 0) return;  // never comes
    std::jthread aborter([&] {
      std::this_thread::sleep_for(50ms);
      if (comm.rank() == 1) comm.abort();
    });
    auto text = error_of<Unavailable>([&] { comm.barrier(soon()); });
    EXPECT_THAT(text, testing::AnyOf(HasSubstr("abort"), HasSubstr("gave up")));
    conformance::check_broken(comm);
  });
}

TEST_P(CommunicatorTest, AStopRequestEndsAPendingOperation) {
  if (GetParam().size == 1) return;
  run_group(GetParam(), [](Communicator& comm) {
    if (comm.rank() != 1) return;
    std::stop_source source;
    std::jthread stopper([&] {
      std::this_thread::sleep_for(50ms);
      source.request_stop();
    });
    auto wait = WaitContext::with_timeout(60s, source.get_token());
    EXPECT_THAT(error_of<Cancelled>([&] { comm.barrier(wait); }),
                HasSubstr(GetParam().kind == Kind::Local || GetParam().kind == Kind::GatedRing
                              ? "cancelled"
                              : "cancelled while waiting for rank "));
  });
}

TEST_P(CommunicatorTest, AStopRequestOfOneRankStopsTheOthers) {
  if (GetParam().size < 3 || GetParam().kind == Kind::Local) return;
  run_group(GetParam(), [](Communicator& comm) {
    if (comm.rank() == 0) return;  // never comes
    std::stop_source source;
    if (comm.rank() == 1) source.request_stop();
    auto wait = WaitContext::with_timeout(60s, source.get_token());
    EXPECT_THAT(error_of<Cancelled>([&] { comm.barrier(wait); }), HasSubstr("cancelled"));
  });
}

TEST_P(CommunicatorTest, ARankThatLeavesIsNamed) {
  if (GetParam().size == 1 || GetParam().kind == Kind::Local) return;
  auto store = std::make_shared<RendezvousStore>();
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < GetParam().size; ++rank)
    threads.emplace_back([&, rank] {
      auto rendezvous = make_in_process_rendezvous(store, {"job", 1});
      RingOptions options;
      options.rank = rank;
      options.size = GetParam().size;
      auto comm = make_ring_communicator(options, *rendezvous, soon());
      if (rank == 0) {
        comm->barrier(soon());
        return;  // destroyed
      }
      auto started = std::chrono::steady_clock::now();
      std::vector<double> data(1000000);
      auto text = error_of<Unavailable>([&] {
        comm->barrier(soon());  // here too, when a faster rank has met the loss already and says so
        comm->all_reduce(data.data(), data.data(), 1000000, DType::Float64, ReduceOp::Sum, StreamRef::host(),
                         soon());
      });
      EXPECT_THAT(text, HasSubstr("rank 0 (127.0.0.1:"));
      EXPECT_THAT(text, HasSubstr("is gone"));
      EXPECT_LT(std::chrono::steady_clock::now() - started, 30s) << "long before the deadline";
    });
}

/// What a rank of the group has of sums of numbers of very different size: arrays about as long as those that
/// are summed whole at most, longer ones, and parts of a scatter.
std::vector<std::vector<float>> uneven_sums(Kind kind, int size) {
  std::vector<std::vector<float>> of_ranks(static_cast<std::size_t>(size));
  run_group({kind, size}, [&](Communicator& comm) {
    std::vector<float>& all = of_ranks[static_cast<std::size_t>(comm.rank())];
    for (const std::int64_t count : {1L, 100L, 4096L, 4097L, 100003L}) {
      std::vector<float> input(static_cast<std::size_t>(count * size)), output(input.size());
      for (std::size_t i = 0; i < input.size(); ++i)
        input[i] = std::ldexp(i % 2 ? 1.7F : -1.3F, static_cast<int>((i + 5 * comm.rank()) % 24));
      comm.all_reduce(input.data(), output.data(), count, DType::Float32, ReduceOp::Sum, StreamRef::host(),
                      soon());
      all.insert(all.end(), output.begin(), output.begin() + count);
      comm.reduce_scatter(input.data(), output.data(), count, DType::Float32, ReduceOp::Sum,
                          StreamRef::host(), soon());
      all.insert(all.end(), output.begin(), output.begin() + count);
    }
  });
  return of_ranks;
}

/// Before a step, and before what the host exchanges: who is late holds up all of its process.
TEST(GateTest, NoRankIsAheadOfOneThatIsLate) {
  std::atomic<bool> late_came{false};
  run_group({Kind::GatedRing, 3}, [&](Communicator& comm) {
    for (std::uint64_t step = 0; step < 2000; ++step) comm.begin_step(step, soon());
    if (comm.rank() == 2) {
      std::this_thread::sleep_for(100ms);
      late_came = true;
    }
    comm.begin_step(2000, soon());
    EXPECT_TRUE(late_came);
  });
}

TEST(SumOrderTest, ThreadsOfAProcessHaveTheBitsOfProcesses) {
  for (const int size : {2, 3, 5, 9})
    EXPECT_EQ(uneven_sums(Kind::Local, size), uneven_sums(Kind::Ring, size)) << size;
}

INSTANTIATE_TEST_SUITE_P(All, CommunicatorTest,
                         testing::Values(GroupCase{Kind::Local, 1}, GroupCase{Kind::Local, 2},
                                         GroupCase{Kind::Local, 3}, GroupCase{Kind::Local, 4},
                                         GroupCase{Kind::Ring, 1}, GroupCase{Kind::Ring, 2},
                                         GroupCase{Kind::Ring, 3}, GroupCase{Kind::Ring, 4},
                                         GroupCase{Kind::TlsRing, 3}, GroupCase{Kind::TokenRing, 3},
                                         GroupCase{Kind::GatedRing, 2}, GroupCase{Kind::GatedRing, 3}),
                         name_of);

TEST(LocalCommunicatorTest, ARankThatIsDestroyedIsNamed) {
  auto ranks = make_local_group(2);
  ranks[1].reset();
  EXPECT_THAT(error_of<Unavailable>([&] { ranks[0]->barrier(soon()); }),
              HasSubstr("rank 1 (a thread of this process) is gone"));
}

TEST(LocalCommunicatorTest, ReceiverAndSenderMustAgree) {
  auto ranks = make_local_group(2);
  float data[4] = {};
  std::jthread sender([&] {
    error_of<InvalidArgument>([&] { ranks[0]->send(data, 2, DType::Float32, 1, StreamRef::host(), soon()); });
  });
  EXPECT_THAT(error_of<InvalidArgument>(
                  [&] { ranks[1]->recv(data, 4, DType::Float32, 0, StreamRef::host(), soon()); }),
              HasSubstr("rank 0 sends 2 float32 and rank 1 receives 4 float32"));
}

TEST(RingCommunicatorTest, ARankThatComesTooLateHearsWhoGaveItUp) {
  std::latch given_up(1);
  run_group({Kind::Ring, 2}, [&](Communicator& comm) {
    if (comm.rank() == 1) {
      EXPECT_THAT(error_of<DeadlineExceeded>([&] { comm.barrier(WaitContext::with_timeout(50ms)); }),
                  HasSubstr("rank 0 (127.0.0.1:"));
      given_up.count_down();
      return;
    }
    given_up.wait();
    auto text = error_of<DeadlineExceeded>([&] { comm.barrier(soon()); });
    EXPECT_THAT(text,
                testing::ContainsRegex("rank 0: barrier #1: rank 1 .* gave up: rank 0 .* did not take part"));
  });
}

TEST(RingCommunicatorTest, RanksThatNeverComeAreNamedWhenConnecting) {
  auto rendezvous = make_in_process_rendezvous(std::make_shared<RendezvousStore>(), {"job", 1});
  RingOptions options;
  options.rank = 1;
  options.size = 5;
  rendezvous->set_text("ring/3/address", "127.0.0.1:1", soon());
  EXPECT_THAT(error_of<DeadlineExceeded>(
                  [&] { make_ring_communicator(options, *rendezvous, WaitContext::with_timeout(100ms)); }),
              HasSubstr("rank 1: timed out waiting for ranks 0, 2 and 4 at the rendezvous"));
}

TEST(RingCommunicatorTest, ARankThatDoesNotConnectIsNamed) {
  auto rendezvous = make_in_process_rendezvous(std::make_shared<RendezvousStore>(), {"job", 1});
  RingOptions options;
  options.size = 2;
  rendezvous->set_text("ring/1/address", "127.0.0.1:1", soon());
  EXPECT_THAT(error_of<DeadlineExceeded>(
                  [&] { make_ring_communicator(options, *rendezvous, WaitContext::with_timeout(100ms)); }),
              HasSubstr("timed out waiting for rank 1 (127.0.0.1:1) to connect"));
  options.rank = 1;
  rendezvous->set_text("ring/0/local", "", soon());
  rendezvous->set_text("ring/0/address", "127.0.0.1:1", soon());
  EXPECT_THAT(error_of<DeadlineExceeded>(
                  [&] { make_ring_communicator(options, *rendezvous, WaitContext::with_timeout(100ms)); }),
              HasSubstr("rank 0 (127.0.0.1:1) did not accept the connection: Connection refused"));
}

TEST(MakeCommunicatorTest, NamesAndWrongOptions) {
  for (auto name : {"local", "ring", "mpi", "nccl"}) EXPECT_EQ(backend_name(*backend_from_name(name)), name);
  EXPECT_FALSE(backend_from_name("gloo"));
  CommunicatorOptions options;
  EXPECT_THAT(error_of<InvalidArgument>([&] { make_communicator(options, soon()); }),
              HasSubstr("[ring] the ranks find each other through a rendezvous"));
  options.backend = Backend::Local;
  EXPECT_EQ(make_communicator(options, soon())->backend(), "local");
  options.ring.size = 2;
  EXPECT_THAT(error_of<InvalidArgument>([&] { make_communicator(options, soon()); }),
              HasSubstr("a group of 1, not of 2"));
}

TEST(ReduceTest, MaxAndMinKeepNan) {
  const float nan = std::nanf(""), a[] = {1, nan, 3}, b[] = {nan, 2, 4};
  float out[3];
  for (auto op : {ReduceOp::Max, ReduceOp::Min}) {
    reduce_pair(out, a, b, 3, DType::Float32, op);
    EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]));
    EXPECT_EQ(out[2], op == ReduceOp::Max ? 4 : 3);
  }
}

TEST(ReduceTest, IntegerSumsWrapAround) {
  std::int32_t a = std::numeric_limits<std::int32_t>::max(), one = 1;
  reduce_pair(&a, &a, &one, 1, DType::Int32, ReduceOp::Sum);
  EXPECT_EQ(a, std::numeric_limits<std::int32_t>::min());
}

}  // namespace
}  // namespace braid::comm
