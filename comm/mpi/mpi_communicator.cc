#include "comm/mpi/mpi_communicator.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>
#include <optional>
#include <thread>
#include <vector>

#include "comm/mpi/mpi_call.h"
#include "comm/mpi/mpi_types.h"
#include "comm/reduce.h"
#include "comm/rendezvous/rendezvous.h"

namespace braid::comm {
namespace {

constexpr std::int64_t kMaxCount = std::int64_t{1} << 30;  // of one call; MPI counts in int
constexpr std::chrono::milliseconds kAnswerTime{1000};
constexpr int kNoticeTag = 1, kMeetTag = 2;
// What a notice says. Objects, since MPI may send from them after the call.
const int kWaiting = 0;
const int kGaveUp = 1;

/// MPI's communicators are not freed: that is collective and may wait for the others. The end of MPI frees
/// them too.
class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(std::shared_ptr<MpiSession> session, int size, const WaitContext& wait)
      : session_(std::move(session)), rank_(session_->rank()), size_(size) {
    const MPI_Comm members = size_ == session_->size() ? MPI_COMM_WORLD : first_ranks(wait);
    for (auto* communicator : {&data_, &control_}) {
      start("create", wait,
            [&](MPI_Request* request) { return MPI_Comm_idup(members, communicator, request); });
      MPI_Comm_set_errhandler(*communicator, MPI_ERRORS_RETURN);
    }
    listening_ = true;
  }

  ~MpiCommunicator() override {
    // Freeing is collective and may wait for the others; the end of MPI frees it too. A broken one is beyond
    // use anyway.
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view backend() const override { return "mpi"; }

  void all_reduce(const void* input, void* output, std::int64_t count, DType dtype, ReduceOp op,
                  StreamRef stream, const WaitContext& wait) override {
    begin([&] {
      check("all_reduce", input, output, count, dtype, stream);
      check_reduction(backend(), "all_reduce", dtype);
    });
    in_pieces(count, dtype, [&](std::int64_t offset, int piece) {
      auto* from = input == output ? MPI_IN_PLACE : at(input, offset);
      start("all_reduce", wait, [&](MPI_Request* request) {
        return MPI_Iallreduce(from, at(output, offset), piece, reduction_type(dtype), reduction(op), data_,
                              request);
      });
    });
  }

  void reduce_scatter(const void* input, void* output, std::int64_t count_per_rank, DType dtype, ReduceOp op,
                      StreamRef stream, const WaitContext& wait) override {
    begin([&] {
      check("reduce_scatter", input, output, count_per_rank, dtype, stream);
      check_reduction(backend(), "reduce_scatter", dtype);
      check_count("reduce_scatter", count_per_rank);
    });
    start("reduce_scatter", wait, [&](MPI_Request* request) {
      return MPI_Ireduce_scatter_block(input, output, static_cast<int>(count_per_rank), reduction_type(dtype),
                                       reduction(op), data_, request);
    });
  }

  void all_gather(const void* input, void* output, std::int64_t count_per_rank, DType dtype, StreamRef stream,
                  const WaitContext& wait) override {
    begin([&] {
      check("all_gather", input, output, count_per_rank, dtype, stream);
      check_count("all_gather", count_per_rank);
    });
    auto count = static_cast<int>(count_per_rank);
    auto own = count_per_rank * static_cast<std::int64_t>(dtype_size(dtype)) * rank_;
    bool in_place = count > 0 && input == at(output, own);
    start("all_gather", wait, [&](MPI_Request* request) {
      return MPI_Iallgather(in_place ? MPI_IN_PLACE : input, count, plain_type(dtype), output, count,
                            plain_type(dtype), data_, request);
    });
  }

  void broadcast(void* data, std::int64_t count, DType dtype, int root, StreamRef stream,
                 const WaitContext& wait) override {
    begin([&] {
      check("broadcast", data, data, count, dtype, stream);
      check_rank(backend(), "broadcast", "root", root, size_);
    });
    in_pieces(count, dtype, [&](std::int64_t offset, int piece) {
      start("broadcast", wait, [&](MPI_Request* request) {
        return MPI_Ibcast(at(data, offset), piece, plain_type(dtype), root, data_, request);
      });
    });
  }

  void all_to_all(const void* input, void* output, std::int64_t count_per_rank, DType dtype, StreamRef stream,
                  const WaitContext& wait) override {
    begin([&] {
      check("all_to_all", input, output, count_per_rank, dtype, stream);
      check_count("all_to_all", count_per_rank);
    });
    auto count = static_cast<int>(count_per_rank);
    start("all_to_all", wait, [&](MPI_Request* request) {
      return MPI_Ialltoall(input, count, plain_type(dtype), output, count, plain_type(dtype), data_, request);
    });
  }

  /// The counts travel first, so that ranks which disagree are told; MPI itself would truncate.
  void all_to_all(const void* input, std::span<const std::int64_t> send_counts, void* output,
                  std::span<const std::int64_t> recv_counts, DType dtype, StreamRef stream,
                  const WaitContext& wait) override {
    begin([&] {
      const ExchangeCounts all =
          check_host_exchange(backend(), input, send_counts, output, recv_counts, dtype, size_, stream);
      check_count("all_to_all", std::max(all.sent, all.received));
    });
    std::vector<std::int64_t> announced(static_cast<std::size_t>(size_));
    start("all_to_all", wait, [&](MPI_Request* request) {
      return MPI_Ialltoall(send_counts.data(), 1, MPI_INT64_T, announced.data(), 1, MPI_INT64_T, data_,
                           request);
    });
    begin([&] {
      for (std::size_t r = 0; r < announced.size(); ++r)
        if (announced[r] != recv_counts[r])
          throw InvalidArgument(
              fmt::format("[mpi] rank {} calls all_to_all of {} {} for rank {}, which takes {}", r,
                          announced[r], dtype_name(dtype), rank_, recv_counts[r]));
    });
    const Blocks from(send_counts), to(recv_counts);
    start("all_to_all", wait, [&](MPI_Request* request) {
      return MPI_Ialltoallv(input, from.counts.data(), from.offsets.data(), plain_type(dtype), output,
                            to.counts.data(), to.offsets.data(), plain_type(dtype), data_, request);
    });
  }

  void send(const void* data, std::int64_t count, DType dtype, int destination, StreamRef stream,
            const WaitContext& wait) override {
    begin([&] {
      check("send", data, data, count, dtype, stream);
      check_peer(backend(), "send", "destination", destination, rank_, size_);
    });
    in_pieces(count, dtype, [&](std::int64_t offset, int piece) {
      start("send", wait, [&](MPI_Request* request) {
        return MPI_Isend(at(data, offset), piece, plain_type(dtype), destination, 0, data_, request);
      });
    });
  }

  void recv(void* data, std::int64_t count, DType dtype, int source, StreamRef stream,
            const WaitContext& wait) override {
    begin([&] {
      check("recv", data, data, count, dtype, stream);
      check_peer(backend(), "recv", "source", source, rank_, size_);
    });
    in_pieces(count, dtype, [&](std::int64_t offset, int piece) {
      start("recv", wait, [&](MPI_Request* request) {
        return MPI_Irecv(at(data, offset), piece, plain_type(dtype), source, 0, data_, request);
      });
    });
  }

  void barrier(const WaitContext& wait) override {
    begin([] {});
    start("barrier", wait, [&](MPI_Request* request) { return MPI_Ibarrier(data_, request); });
  }

  void abort() override { aborted_ = true; }

 private:
  /// Counts as MPI takes them.
  struct Blocks {
    explicit Blocks(std::span<const std::int64_t> from) {
      int end = 0;
      for (const std::int64_t count : from) {
        counts.push_back(static_cast<int>(count));
        offsets.push_back(end);
        end += counts.back();
      }
    }
    std::vector<int> counts, offsets;
  };

  /// MPI makes a communicator of some ranks by a blocking call alone: all of them have come to it before
  /// anyone calls.
  MPI_Comm first_ranks(const WaitContext& wait) {
    static int heard = 0;  // MPI may write here after a wait is given up
    const auto tell = [&](int rank) {
      start("create", wait, [rank](MPI_Request* request) {
        return MPI_Isend(&kWaiting, 1, MPI_INT, rank, kMeetTag, MPI_COMM_WORLD, request);
      });
    };
    const auto hear = [&](int rank) {
      start("create", wait, [rank](MPI_Request* request) {
        return MPI_Irecv(&heard, 1, MPI_INT, rank, kMeetTag, MPI_COMM_WORLD, request);
      });
    };
    if (rank_ == 0) {
      for (int rank = 1; rank < size_; ++rank) hear(rank);
      for (int rank = 1; rank < size_; ++rank) tell(rank);
    } else {
      tell(0);
      hear(0);
    }
    int range[1][3] = {{0, size_ - 1, 1}};
    MPI_Group all = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
    MPI_Comm members = MPI_COMM_NULL;
    std::lock_guard lock(session_->mutex());
    BRAID_MPI_CHECK(MPI_Comm_group(MPI_COMM_WORLD, &all), rank_);
    BRAID_MPI_CHECK(MPI_Group_range_incl(all, 1, range, &group), rank_);
    BRAID_MPI_CHECK(MPI_Comm_create_group(MPI_COMM_WORLD, group, kMeetTag, &members), rank_);
    return members;
  }

  static void* at(const void* data, std::int64_t offset) {
    return static_cast<std::byte*>(const_cast<void*>(data)) + offset;
  }

  void check(std::string_view operation, const void* input, const void* output, std::int64_t count,
             DType dtype, StreamRef stream) const {
    check_host_arrays(backend(), operation, input, output, count, dtype, stream);
  }
  void check_count(std::string_view operation, std::int64_t count) const {
    if (count > std::numeric_limits<int>::max())
      throw InvalidArgument(
          fmt::format("[mpi] {}: {} elements a rank are more than MPI counts", operation, count));
  }

  /// Checks arguments; what they throw breaks the communicator, as every error does.
  template <class Checks>
  void begin(Checks checks) {
    if (broken_)
      throw Unavailable(
          fmt::format("[mpi] rank {}: the communicator is broken: {}", rank_, broken_->message));
    try {
      checks();
      if (aborted_) throw Unavailable(fmt::format("[mpi] rank {}: aborted", rank_));
    } catch (...) {
      broken_ = capture_current_exception();
      tell_all(kGaveUp);
      throw;
    }
  }

  template <class Body>
  static void in_pieces(std::int64_t count, DType dtype, Body body) {
    std::int64_t done = 0;
    do {
      auto piece = std::min(count - done, kMaxCount);
      body(done * static_cast<std::int64_t>(dtype_size(dtype)), static_cast<int>(piece));
      done += piece;
    } while (done < count);
  }

  /// Begins an operation and waits for its end.
  template <class Begin>
  void start(const char* operation, const WaitContext& wait, Begin begin_operation) {
    auto what = fmt::format("[mpi] rank {}: {}", rank_, operation);
    try {
      MPI_Request request;
      {
        std::lock_guard lock(session_->mutex());
        check_mpi(begin_operation(&request), operation, rank_);
      }
      wait_request(*session_, request, wait, what, [&] { poll(what); });
    } catch (const DeadlineExceeded&) {
      auto missing = find_missing();
      if (gave_up_)
        fail(ErrorCode::Unavailable, fmt::format("{}: {} gave up", what, session_->name_of(*gave_up_)));
      fail(ErrorCode::DeadlineExceeded, fmt::format("{}: {}", what, missing));
    } catch (const Error& error) {
      tell_all(kGaveUp);
      fail(error.code(), error.message());
    }
  }

  [[noreturn]] void fail(ErrorCode code, const std::string& text) {
    broken_ = make_error(code, text);
    session_->poison();
    throw_error(*broken_);
  }

  /// Called with the session's lock held.
  void poll(const std::string& what) {
    if (aborted_) throw Unavailable(what + ": aborted");
    if (receive_notices())
      throw DeadlineExceeded(what);  // another rank ends the operation: find out why, together
  }

  bool receive_notices() {
    if (!listening_) return false;
    bool any = false;
    for (;;) {
      int arrived = 0, notice = 0;
      MPI_Status status;
      BRAID_MPI_CHECK(MPI_Iprobe(MPI_ANY_SOURCE, kNoticeTag, control_, &arrived, &status), rank_);
      if (!arrived) return any;
      BRAID_MPI_CHECK(
          MPI_Recv(&notice, 1, MPI_INT, status.MPI_SOURCE, kNoticeTag, control_, MPI_STATUS_IGNORE), rank_);
      answered_[static_cast<std::size_t>(status.MPI_SOURCE)] = true;
      if (notice == kGaveUp) gave_up_ = status.MPI_SOURCE;
      any = true;
    }
  }

  void tell_all(const int& notice) {
    if (!listening_ || told_) return;
    told_ = true;
    std::lock_guard lock(session_->mutex());
    for (int rank = 0; rank < size_; ++rank) {
      if (rank == rank_) continue;
      MPI_Request request;
      if (MPI_Isend(&notice, 1, MPI_INT, rank, kNoticeTag, control_, &request) == MPI_SUCCESS)
        MPI_Request_free(&request);
    }
  }

  /// Those who are in the operation too answer; the others are missing.
  std::string find_missing() {
    tell_all(kWaiting);
    answered_[static_cast<std::size_t>(rank_)] = true;
    for (auto limit = WaitContext::with_timeout(kAnswerTime); !limit.expired() && !gave_up_;) {
      {
        std::lock_guard lock(session_->mutex());
        receive_notices();
      }
      if (std::find(answered_.begin(), answered_.end(), false) == answered_.end())
        return "given up: all ranks are in it, and it did not end before the deadline of one of them";
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::string names;
    for (int rank = 0; rank < size_; ++rank)
      if (!answered_[static_cast<std::size_t>(rank)])
        names += (names.empty() ? "" : ", ") + session_->name_of(rank);
    return names + " did not take part before the deadline";
  }

  const std::shared_ptr<MpiSession> session_;
  const int rank_;
  const int size_;
  MPI_Comm data_ = MPI_COMM_NULL;
  MPI_Comm control_ = MPI_COMM_NULL;
  bool listening_ = false;  // control_ is whole
  ErrorPtr broken_;
  bool told_ = false;
  std::vector<bool> answered_ = std::vector<bool>(static_cast<std::size_t>(size_));  // sent a notice
  std::optional<int> gave_up_;
  std::atomic<bool> aborted_{false};
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(std::shared_ptr<MpiSession> session, int size,
                                                    const WaitContext& wait) {
  return std::make_unique<MpiCommunicator>(std::move(session), size, wait);
}

}  // namespace braid::comm
