// The conformance suite on NCCL, whose ranks are threads with a GPU each, and what is particular to it: work
// on CUDA streams, in captured graphs, and ranks that are missed there. Skips aloud where there are too few
// GPUs.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include <barrier>
#include <cmath>
#include <thread>

#include "base/cuda/check.h"
#include "base/cuda/handles.h"
#include "comm/nccl/nccl_communicator.h"
#include "comm/nccl/peer_exchange.h"
#include "comm/nccl/peer_mailbox.h"
#include "comm/nccl/row_exchange.h"
#include "comm/rendezvous/in_process.h"
#include "tests/comm/communicator_conformance.h"
#include "tests/comm/nccl/device_array.h"
#include "tests/comm/nccl/exchange_rounds.h"
#include "tests/comm/nccl/mail_rounds.h"

namespace braid::comm {
namespace {

using namespace std::chrono_literals;
using conformance::soon;
using testing::AnyOf;
using testing::HasSubstr;

constexpr int kMostRanks = 4;

int gpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) cudaGetLastError();
  return count;
}

#define REQUIRE_GPUS(n) \
  if (gpus() < (n)) GTEST_SKIP() << "SKIPPED: needs " << (n) << " GPUs, there are " << gpus()

std::unique_ptr<Communicator> make_rank(const std::shared_ptr<RendezvousStore>& store,
                                        std::vector<std::unique_ptr<Rendezvous>>& kept, int rank, int size) {
  auto& rendezvous = kept[static_cast<std::size_t>(rank)];
  rendezvous = make_in_process_rendezvous(store, {"job", 1});
  return make_nccl_communicator({rank, size, rank, "test"}, *rendezvous, WaitContext::with_timeout(60s));
}

/// Runs `body` on every rank of a new group, a thread and a GPU a rank. Communicators live until all bodies
/// have ended.
void run_group(int size, const std::function<void(Communicator&)>& body) {
  auto store = std::make_shared<RendezvousStore>();
  std::vector<std::unique_ptr<Rendezvous>> rendezvous(static_cast<std::size_t>(size));
  std::vector<std::unique_ptr<Communicator>> ranks(static_cast<std::size_t>(size));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank)
      threads.emplace_back([&, rank] {
        BRAID_CUDA_CHECK(cudaSetDevice(rank));
        ranks[static_cast<std::size_t>(rank)] = make_rank(store, rendezvous, rank, size);
        body(*ranks[static_cast<std::size_t>(rank)]);
      });
  }
  // All at once, as the processes of a job end.
  std::vector<std::jthread> threads;
  for (auto& rank : ranks) threads.emplace_back([&rank] { rank.reset(); });
}

class NcclTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { REQUIRE_GPUS(GetParam()); }
  int size() const { return GetParam(); }
};

TEST_P(NcclTest, OperationsGiveTheClosedFormValues) {
  run_group(size(), [](Communicator& comm) { conformance::check_operations(comm); });
}

TEST_P(NcclTest, WrongUseIsRefusedAndBreaksTheCommunicator) {
  for (const auto& use : conformance::wrong_uses()) {
    SCOPED_TRACE(use.name);
    if (std::string_view(use.name) == "CudaStream") continue;
    run_group(size(), [&](Communicator& comm) { conformance::check_wrong_use(comm, use); });
  }
  run_group(size(), [](Communicator& comm) {
    conformance::check_wrong_use(
        comm, {"DefaultStream",
               [](Communicator& c) {
                 float x = 0;
                 c.all_reduce(&x, &x, 1, DType::Float32, ReduceOp::Sum, {StreamKind::Cuda, nullptr}, soon());
               },
               "not on the default stream"});
  });
}

TEST_P(NcclTest, ARankThatDoesNotComeIsNamed) {
  if (size() == 1) return;
  run_group(size(), [](Communicator& comm) { conformance::check_absence(comm); });
}

TEST_P(NcclTest, AbortEndsAPendingOperation) {
  if (size() == 1) return;
  run_group(size(), [](Communicator& comm) {
    if (comm.rank() == 0) return;  // never comes
    std::jthread aborter([&] {
      std::this_thread::sleep_for(50ms);
      if (comm.rank() == 1) comm.abort();
    });
    const auto text = error_of<Unavailable>([&] { comm.barrier(soon()); });
    EXPECT_THAT(text, AnyOf(HasSubstr("abort"), HasSubstr("gave up")));
    conformance::check_broken(comm);
  });
}

TEST_P(NcclTest, OperationsOnAStreamAreOrderedByIt) {
  run_group(size(), [](Communicator& comm) {
    const cuda::Stream stream = cuda::make_stream();
    const auto n = static_cast<std::size_t>(comm.size());
    DeviceArray data(1000, 1), other(7, 2), gathered(1000 * n, 0);
    comm.all_reduce(data.get(), data.get(), 1000, DType::Float32, ReduceOp::Sum, ref(stream), soon());
    const ReducePiece pieces[] = {{data.get(), data.get(), 1000}, {other.get(), other.get(), 7}, {}};
    comm.all_reduce(pieces, DType::Float32, ReduceOp::Sum, ref(stream), soon());
    comm.all_gather(data.get(), gathered.get(), 1000, DType::Float32, ref(stream), soon());
    finish(stream);
    const auto size = static_cast<float>(comm.size());
    EXPECT_EQ(data.read(), std::vector<float>(1000, size * size));
    EXPECT_EQ(other.read(), std::vector<float>(7, 2 * size));
    EXPECT_EQ(gathered.read(), std::vector<float>(1000 * n, size * size));
  });
}

TEST_P(NcclTest, SumsOfMegabytesAreMadeInEveryRound) {
  run_group(size(), [](Communicator& comm) {
    const cuda::Stream stream = cuda::make_stream();
    const auto own = static_cast<float>(comm.rank() + 1), n = static_cast<float>(comm.size());
    DeviceArray input(2'000'003, own), sum(2'000'003, -1), bias(70'001, own), large(5'000'000, own);
    const ReducePiece pieces[] = {{input.get(), sum.get(), 2'000'003}, {bias.get(), bias.get(), 70'001}, {}};
    const ReducePiece in_place[] = {{bias.get(), bias.get(), 70'001}, {sum.get(), sum.get(), 2'000'003}};
    comm.all_reduce(pieces, DType::Float32, ReduceOp::Sum, ref(stream), soon());
    comm.all_reduce(large.get(), large.get(), 5'000'000, DType::Float32, ReduceOp::Sum, ref(stream), soon());
    finish(stream);
    BRAID_CUDA_CHECK(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
    for (int round = 0; round < 3; ++round)
      comm.all_reduce(in_place, DType::Float32, ReduceOp::Sum, ref(stream), soon());
    cudaGraph_t captured = nullptr;
    BRAID_CUDA_CHECK(cudaStreamEndCapture(stream.get(), &captured));
    const cuda::Graph graph(captured);
    cudaGraphExec_t made = nullptr;
    BRAID_CUDA_CHECK(cudaGraphInstantiate(&made, graph.get(), 0));
    const cuda::GraphExec launchable(made);
    for (int step = 0; step < 2; ++step) BRAID_CUDA_CHECK(cudaGraphLaunch(launchable.get(), stream.get()));
    finish(stream);
    const float once = n * (n + 1) / 2, all = once * std::pow(n, 6.0F);
    EXPECT_EQ(sum.read(), std::vector<float>(2'000'003, all));
    EXPECT_EQ(bias.read(), std::vector<float>(70'001, all));
    EXPECT_EQ(large.read(), std::vector<float>(5'000'000, once));
    EXPECT_EQ(input.read(), std::vector<float>(2'000'003, own));
  });
}

TEST_P(NcclTest, OperationsAreCapturedAndReplayed) {
  run_group(size(), [](Communicator& comm) {
    const cuda::Stream stream = cuda::make_stream();
    DeviceArray data(4096, 1);
    // As a program does: the first run is launched.
    comm.all_reduce(data.get(), data.get(), 4096, DType::Float32, ReduceOp::Sum, ref(stream), soon());
    finish(stream);
    BRAID_CUDA_CHECK(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
    comm.all_reduce(data.get(), data.get(), 4096, DType::Float32, ReduceOp::Sum, ref(stream), soon());
    comm.all_reduce(data.get(), data.get(), 4096, DType::Float32, ReduceOp::Max, ref(stream), soon());
    cudaGraph_t captured = nullptr;
    BRAID_CUDA_CHECK(cudaStreamEndCapture(stream.get(), &captured));
    const cuda::Graph graph(captured);
    cudaGraphExec_t made = nullptr;
    BRAID_CUDA_CHECK(cudaGraphInstantiate(&made, graph.get(), 0));
    const cuda::GraphExec exec(made);
    data.write(std::vector<float>(4096, 1));
    for (int replay = 0; replay < 3; ++replay) {
      comm.begin_step(static_cast<std::uint64_t>(replay), soon());
      BRAID_CUDA_CHECK(cudaGraphLaunch(exec.get(), stream.get()));
      finish(stream);
      comm.end_step(static_cast<std::uint64_t>(replay));
    }
    const auto size = static_cast<float>(comm.size());
    EXPECT_EQ(data.read(), std::vector<float>(4096, size * size * size));
  });
}

TEST_P(NcclTest, ARankThatIsMissingInAStepIsNamedAndTheKernelsEnd) {
  if (size() == 1) return;
  run_group(size(), [](Communicator& comm) {
    const cuda::Stream stream = cuda::make_stream();
    DeviceArray data(4096, 1);
    comm.all_reduce(data.get(), data.get(), 4096, DType::Float32, ReduceOp::Sum, ref(stream), soon());
    finish(stream);
    comm.barrier(soon());
    if (comm.rank() == 0) return;  // does not come
    comm.begin_step(0, WaitContext::with_timeout(300ms));
    comm.all_reduce(data.get(), data.get(), 4096, DType::Float32, ReduceOp::Sum, ref(stream), soon());
    finish(stream);
    const auto text = error_of<DeadlineExceeded>([&] { comm.end_step(0); });
    EXPECT_THAT(text, HasSubstr("rank 0 ("));
    EXPECT_THAT(text, HasSubstr("did not take part"));
    conformance::check_broken(comm);
  });
}

TEST_P(NcclTest, AnOperationOnAStreamHasItsOwnDeadline) {
  if (size() == 1) return;
  run_group(size(), [](Communicator& comm) {
    const cuda::Stream stream = cuda::make_stream();
    DeviceArray data(64, 1);
    // The first one asks whether ranks reach each other's memory.
    comm.all_reduce(data.get(), data.get(), 64, DType::Float32, ReduceOp::Sum, ref(stream), soon());
    finish(stream);
    comm.barrier(soon());
    if (comm.rank() == 0) return;
    comm.all_reduce(data.get(), data.get(), 64, DType::Float32, ReduceOp::Sum, ref(stream),
                    WaitContext::with_timeout(300ms));
    finish(stream);
    const auto text = error_of<Unavailable>([&] { comm.barrier(soon()); });
    EXPECT_THAT(text, HasSubstr("rank 0 ("));
  });
}

TEST_P(NcclTest, ARankThatIsMissingWhenMemoryIsSharedIsNamed) {
  if (size() == 1) return;
  run_group(size(), [](Communicator& comm) {
    const cuda::Stream stream = cuda::make_stream();
    DeviceArray data(64, 1);
    comm.barrier(soon());
    if (comm.rank() == 0) return;
    const auto text = error_of<DeadlineExceeded>([&] {
      comm.all_reduce(data.get(), data.get(), 64, DType::Float32, ReduceOp::Sum, ref(stream),
                      WaitContext::with_timeout(300ms));
    });
    EXPECT_THAT(text, HasSubstr("rank 0 ("));
    conformance::check_broken(comm);
  });
}

Party party_of(Communicator& comm) {
  return {comm.rank(), comm.size(),
          [&comm](const PieceLayout& layout) { return comm.open_exchange("pieces", layout, soon()); },
          [&comm](const RowLayout& layout) { return comm.open_exchange("rows", layout, soon()); },
          [&comm] { comm.barrier(soon()); }};
}

TEST_P(NcclTest, PiecesAndRowsArriveInEveryRound) {
  if (size() == 1) return;
  run_group(size(), [](Communicator& comm) {
    if (!comm.exchanges_rows(soon())) GTEST_SKIP() << "SKIPPED: these GPUs do not write each other's memory";
    exchange_pieces(party_of(comm));
    exchange_rows(party_of(comm));
  });
}

TEST_P(NcclTest, MailArrivesInItsOrder) {
  if (size() == 1) return;
  run_group(size(), [](Communicator& comm) {
    if (!comm.exchanges_rows(soon())) GTEST_SKIP() << "SKIPPED: these GPUs do not write each other's memory";
    int boxes = 0;
    exchange_mail({comm.rank(), comm.size(),
                   [&](const std::vector<MailSlot>& slots) {
                     return comm.open_mailbox("mail" + std::to_string(boxes++), slots, soon());
                   },
                   [&comm] { comm.barrier(soon()); }});
  });
}

/// A rank of the same process and GPU.
struct Sharer {
  int rank, size;
  std::function<std::unique_ptr<PeerWindow>(const std::vector<std::int64_t>&)> open;
  const int* abort;
  std::function<void()> meet;
};

/// Ranks that are threads with a window each, on one GPU: the kernels of all of them run at once there.
void share_one_gpu(int size, const std::function<void(const Sharer&)>& body) {
  auto store = std::make_shared<RendezvousStore>();
  std::barrier<> meeting(size);
  int* abort = nullptr;
  BRAID_CUDA_CHECK(cudaMallocHost(reinterpret_cast<void**>(&abort), sizeof(int)));
  *abort = 0;
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank)
      threads.emplace_back([&, rank] {
        BRAID_CUDA_CHECK(cudaSetDevice(0));
        const auto rendezvous = make_in_process_rendezvous(store, {"job", 1});
        int windows = 0;
        const auto open = [&](const std::vector<std::int64_t>& bytes) {
          std::string why;
          auto window =
              PeerWindow::open(*rendezvous, "window" + std::to_string(windows++), rank, bytes, soon(), why);
          EXPECT_TRUE(window) << why;
          return window;
        };
        body({rank, size, open, abort, [&] { meeting.arrive_and_wait(); }});
      });
  }
  BRAID_CUDA_CHECK(cudaFreeHost(abort));
}

void run_on_one_gpu(int size, const std::function<void(const Party&)>& body) {
  share_one_gpu(size, [&](const Sharer& rank) {
    body({rank.rank, rank.size,
          [&](const PieceLayout& layout) -> std::shared_ptr<PieceExchange> {
            return make_peer_exchange(rank.open(layout.window_bytes), layout, rank.abort);
          },
          [&](const RowLayout& layout) -> std::shared_ptr<PieceExchange> {
            return make_row_exchange(rank.open(layout.window_bytes), layout, rank.abort);
          },
          rank.meet});
  });
}

std::shared_ptr<Mailbox> open_mail(const Sharer& rank, const std::vector<MailSlot>& slots) {
  return make_peer_mailbox(rank.open(mail_window_bytes(slots, rank.size)), slots, rank.abort);
}

TEST(PeerMailboxTest, MailArrivesInItsOrder) {
  REQUIRE_GPUS(1);
  for (const int size : {2, 3})
    share_one_gpu(size, [](const Sharer& rank) {
      exchange_mail({rank.rank, rank.size,
                     [&](const std::vector<MailSlot>& slots) { return open_mail(rank, slots); }, rank.meet});
    });
}

TEST(PeerMailboxTest, AnAbortEndsTheWaitForAMessage) {
  REQUIRE_GPUS(1);
  share_one_gpu(2, [](const Sharer& rank) {
    const MailMessage large({100'000}), small({3});
    const auto mail = open_mail(rank, {{0, 1, large.room()}, {0, 1, small.room()}});
    const cuda::Stream stream = cuda::make_stream();
    rank.meet();
    if (rank.rank == 1) {
      mail->recv(0, large.parts(), ref(stream));
      mail->recv(1, small.parts(), ref(stream));
      EXPECT_EQ(cudaStreamQuery(stream.get()), cudaErrorNotReady);
      *const_cast<int*>(rank.abort) = 1;
      finish(stream);
    }
    rank.meet();
  });
}

TEST(PeerMailboxTest, TooManySlotsOfAPairAreRefused) {
  std::vector<MailSlot> slots(128, MailSlot{0, 1, 256});
  EXPECT_EQ(why_no_mailbox(slots), "");
  slots.push_back({1, 0, 256});
  EXPECT_EQ(why_no_mailbox(slots), "");
  slots.push_back({0, 1, 256});
  EXPECT_THAT(why_no_mailbox(slots), HasSubstr("more than 128 slots"));
}

TEST(PeerExchangeTest, PiecesArriveInEveryRound) {
  REQUIRE_GPUS(1);
  for (const int size : {2, 3}) run_on_one_gpu(size, exchange_pieces);
}

TEST(PeerExchangeTest, RowsThatNumbersChooseArriveInEveryRound) {
  REQUIRE_GPUS(1);
  EXPECT_EQ(why_no_row_exchange(), "");
  for (const int size : {2, 3, 4})
    run_on_one_gpu(size, [&](const Party& party) { exchange_rows(party, size == 2); });
}

INSTANTIATE_TEST_SUITE_P(Ranks, NcclTest, testing::Range(1, kMostRanks + 1));

TEST(NcclBootstrapTest, RanksThatNeverComeAreNamed) {
  REQUIRE_GPUS(1);
  auto rendezvous = make_in_process_rendezvous(std::make_shared<RendezvousStore>(), {"job", 1});
  rendezvous->set_text("test/3/name", "rank 3 (elsewhere, cuda:0)", soon());
  EXPECT_THAT(error_of<DeadlineExceeded>([&] {
                make_nccl_communicator({1, 5, 0, "test"}, *rendezvous, WaitContext::with_timeout(100ms));
              }),
              HasSubstr("timed out waiting for ranks 0, 2 and 4 at the rendezvous (this process)"));
}

}  // namespace
}  // namespace braid::comm

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  braid::comm::log_nccl_algorithms();
  return RUN_ALL_TESTS();
}
