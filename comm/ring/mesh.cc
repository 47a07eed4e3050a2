#include "comm/ring/mesh.h"

#include <fmt/core.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <set>

#include "base/log.h"

namespace braid::comm {
namespace {

using std::chrono::milliseconds;

// Before the deadline, for those who are in the operation to say for whom they wait.
constexpr milliseconds kAnswerTime{1000};
constexpr int kMostTellings = 16;        // of an operation: a peer that does not read must not block them
constexpr milliseconds kLastWords{200};  // between the end of a data socket and that of its control socket
constexpr int kLooks = 30;               // at the sockets, before it sleeps until they are ready
constexpr std::chrono::microseconds kOwnYield{50};  // a longer one gave the core to somebody else
constexpr int kWaitsWithoutLooks = 100;             // after such a one
constexpr std::size_t kMaxMove =
    256 << 10;  // per call: what was received is reduced while it is in the cache

void signal_event(int fd) {
  std::uint64_t one = 1;
  [[maybe_unused]] auto written = write(fd, &one, sizeof(one));
}

void clear_event(int fd) {
  std::uint64_t count;
  [[maybe_unused]] auto got = read(fd, &count, sizeof(count));
}

}  // namespace

static_assert(sizeof(OperationHeader) == 32, "no padding travels");

std::string_view operation_name(Operation operation) {
  switch (operation) {
    case Operation::AllReduce:
      return "all_reduce";
    case Operation::ReduceScatter:
      return "reduce_scatter";
    case Operation::AllGather:
      return "all_gather";
    case Operation::Broadcast:
      return "broadcast";
    case Operation::AllToAll:
    case Operation::AllToAllCounts:
      return "all_to_all";
    case Operation::SendRecv:
      return "send/recv";
    case Operation::Barrier:
      return "barrier";
  }
  return "unknown operation";
}

std::string OperationHeader::text() const {
  return fmt::format("{} #{} of {} {} ({})", operation_name(operation), sequence, count,
                     dtype_name(static_cast<DType>(dtype)), argument);
}

Mesh::Mesh(int rank, std::vector<PeerSockets> peers)
    : rank_(rank), wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  for (auto& sockets : peers) {
    peers_.emplace_back();
    peers_.back().sockets = std::move(sockets);
  }
}

Mesh::~Mesh() = default;

void Mesh::abort() {
  aborted_ = true;
  signal_event(wake_.get());
}

void Mesh::throw_if_broken() const {
  if (broken_)
    throw Unavailable(fmt::format("[ring] rank {}: the communicator is broken: {}", rank_, broken_->message));
}

std::string Mesh::place() const {
  return current_.sequence == 0 ? fmt::format("[ring] rank {}: {}", rank_, operation_name(current_.operation))
                                : fmt::format("[ring] rank {}: {} #{}", rank_,
                                              operation_name(current_.operation), current_.sequence);
}

void Mesh::run(OperationHeader header, std::span<Flow* const> flows, const WaitContext& wait) {
  throw_if_broken();
  header.sequence = header.operation == Operation::SendRecv ? 0 : ++collectives_;
  current_ = header;
  motions_.clear();
  told_.reset();
  tellings_ = 0;
  for (auto& peer : peers_) peer.waits_for = peer.waits_elsewhere = std::nullopt;
  const auto answers = std::min<std::chrono::nanoseconds>(kAnswerTime, wait.remaining() / 2);
  const auto ask_at = wait.deadline - std::chrono::duration_cast<WaitContext::Clock::duration>(answers);
  for (auto* flow : flows) {
    auto its = header;
    its.count = flow->count.value_or(header.count);
    motions_.push_back({flow, its, its, sizeof(OperationHeader), false, std::nullopt});
  }

  std::optional<std::stop_callback<std::function<void()>>> on_stop;
  if (wait.stop.stop_possible()) on_stop.emplace(wait.stop, [fd = wake_.get()] { signal_event(fd); });

  for (;;) {
    if (aborted_) fail(ErrorCode::Unavailable, rank_, "aborted");
    if (wait.stopped()) cancel();
    bool moved = false, all = true;
    for (auto& motion : motions_) {
      moved |= pump(motion);
      all &= finished(motion);
    }
    if (all) {
      motions_.clear();
      return;
    }
    if (wait.expired()) expire();
    const bool asks = WaitContext::Clock::now() >= ask_at;
    if (asks) tell_for_whom_it_waits();
    if (!moved) wait_for_events(asks ? wait : WaitContext{ask_at, wait.stop});
  }
}

bool Mesh::finished(const Motion& motion) {
  if (motion.header_left > 0 || !motion.flow->done()) return false;
  return motion.flow->direction() == Flow::Direction::Receive || motion.flushed;
}

bool Mesh::pump(Motion& motion) {
  if (motion.blocked || finished(motion)) return false;
  bool sending = motion.flow->direction() == Flow::Direction::Send;
  auto& peer = peers_[motion.flow->peer()];
  auto& stream = *peer.sockets.data.stream;
  auto window = motion.flow->window();
  window = window.first(std::min(window.size(), kMaxMove));
  std::array<iovec, 2> pieces;
  std::size_t used = 0;
  if (motion.header_left > 0) {
    auto* start = reinterpret_cast<std::byte*>(&motion.header) + sizeof(OperationHeader) - motion.header_left;
    pieces[used++] = {start, motion.header_left};
  }
  // The receiver looks at the header before the first byte goes to the destination.
  if (!window.empty() && (sending || motion.header_left == 0))
    pieces[used++] = {window.data(), window.size()};
  IoStatus status;
  if (used > 0) {
    status = sending ? stream.write({pieces.data(), used}) : stream.read({pieces.data(), used});
  } else if (sending && motion.flow->done()) {
    status = stream.flush();
    motion.flushed = !status.wait && !status.ended;
  } else {
    return false;  // waits for another flow
  }
  motion.blocked = status.wait;
  auto bytes = status.bytes;
  if (motion.header_left > 0 && bytes > 0) {
    auto part = std::min(bytes, motion.header_left);
    motion.header_left -= part;
    bytes -= part;
    if (!sending && motion.header_left == 0 && motion.header != motion.expected)
      fail(ErrorCode::InvalidArgument, motion.flow->peer(),
           fmt::format("{} calls {} and rank {} calls {}", peer.sockets.name, motion.header.text(), rank_,
                       motion.expected.text()));
  }
  if (bytes > 0) motion.flow->moved(bytes);
  if (status.ended) lost(motion.flow->peer(), status.error);
  return status.bytes > 0 || motion.flushed;
}

/// Peers that run answer sooner than a sleeping thread wakes up. On a host that has more to run than cores it
/// is the other way round: who yields waits for a turn of everybody else, and who sleeps is woken by the
/// answer.
int Mesh::look_for_events(std::span<pollfd> entries) {
  if (waits_without_looks_ > 0) {
    --waits_without_looks_;
    return 0;
  }
  for (int look = 0; look < kLooks; ++look) {
    if (const int ready = poll(entries.data(), entries.size(), 0); ready != 0) return ready;
    const auto before = std::chrono::steady_clock::now();
    sched_yield();
    if (std::chrono::steady_clock::now() - before > kOwnYield) {
      waits_without_looks_ = kWaitsWithoutLooks;
      return 0;
    }
  }
  return 0;
}

void Mesh::wait_for_events(const WaitContext& wait) {
  std::vector<pollfd> entries;
  std::vector<Motion*> waiting;
  entries.push_back({wake_.get(), POLLIN, 0});
  for (int peer = 0; peer < size(); ++peer) {
    bool readable = peer != rank_ && !peers_[peer].control_ended;
    entries.push_back({readable ? peers_[peer].sockets.control.fd.get() : -1, POLLIN, 0});
  }
  for (auto& motion : motions_) {
    if (!motion.blocked) continue;
    auto events = *motion.blocked == Readiness::Read ? POLLIN : POLLOUT;
    entries.push_back({peers_[motion.flow->peer()].sockets.data.fd.get(), static_cast<short>(events), 0});
    waiting.push_back(&motion);
  }
  auto left = std::chrono::ceil<milliseconds>(wait.remaining());
  auto timeout = static_cast<int>(std::min<milliseconds>(left, std::chrono::hours(1)).count());
  int ready = look_for_events(entries);
  if (ready == 0) ready = poll(entries.data(), entries.size(), timeout);
  if (ready <= 0) return;
  if (entries[0].revents) clear_event(wake_.get());
  auto first_motion = static_cast<std::size_t>(size()) + 1;
  for (std::size_t i = 0; i < waiting.size(); ++i)
    if (entries[first_motion + i].revents) waiting[i]->blocked.reset();
  // Notices come first: they say why a data socket has ended.
  for (int peer = 0; peer < size(); ++peer)
    if (entries[static_cast<std::size_t>(peer) + 1].revents) read_notices(peer);
}

void Mesh::read_notices(int index) {
  auto& peer = peers_[index];
  IoStatus status;
  std::optional<Notice> notice;
  try {
    peer.notices.read(*peer.sockets.control.stream, status);
    while ((notice = peer.notices.next())) take_notice(index, *notice);
  } catch (const DataLoss& error) {
    lost(index, error.message());
  }
  if (!status.ended) return;
  peer.control_ended = true;
  peer.end_reason = status.error.empty() ? "its connection was closed" : status.error;
  // A rank that has done its part may leave; only one that is still needed is lost.
  for (auto& motion : motions_)
    if (motion.flow->peer() == index && !finished(motion) &&
        motion.flow->direction() == Flow::Direction::Send)
      lost(index, peer.end_reason);
  for (auto& motion : motions_)
    if (motion.flow->peer() == index && !finished(motion)) motion.blocked.reset();  // data may still be there
}

void Mesh::take_notice(int index, const Notice& notice) {
  auto& peer = peers_[index];
  if (notice.kind == Notice::Kind::Waiting) {
    // Of another operation: one that is over, or one that keeps the rank from taking part in this one, as a
    // message from a rank that stands still.
    (notice.text == std::to_string(current_.sequence) ? peer.waits_for : peer.waits_elsewhere) = notice.rank;
    tell_for_whom_it_waits();
    return;
  }
  // A rank that came too late for the others hears who gave it up, and not its own name as somebody else's.
  if (notice.rank == rank_)
    fail(notice.code, index, fmt::format("{} gave up: {}", peer.sockets.name, notice.text));
  fail(notice.code, notice.rank, notice.text);
}

void Mesh::lost(int index, const std::string& reason) {
  auto& peer = peers_[index];
  if (!peer.control_ended) {  // perhaps it says why
    auto limit = WaitContext::with_timeout(kLastWords);
    while (!peer.control_ended && !limit.expired()) poll_notices(milliseconds(10));
  }
  auto text = !reason.empty()           ? reason
              : peer.end_reason.empty() ? "its connection was closed"
                                        : peer.end_reason;
  fail(ErrorCode::Unavailable, index, fmt::format("{} is gone: {}", peer.sockets.name, text));
}

void Mesh::poll_notices(milliseconds limit) {
  std::vector<pollfd> entries;
  for (int peer = 0; peer < size(); ++peer) {
    bool readable = peer != rank_ && !peers_[peer].control_ended;
    entries.push_back({readable ? peers_[peer].sockets.control.fd.get() : -1, POLLIN, 0});
  }
  if (poll(entries.data(), entries.size(), static_cast<int>(limit.count())) <= 0) return;
  for (int peer = 0; peer < size(); ++peer)
    if (entries[static_cast<std::size_t>(peer)].revents) read_notices(peer);
}

int Mesh::waited_for() const {
  for (auto direction : {Flow::Direction::Receive, Flow::Direction::Send})
    for (auto& motion : motions_)
      if (motion.flow->direction() == direction && !finished(motion)) return motion.flow->peer();
  return rank_;
}

int Mesh::end_of_chain(int first) const {
  std::set<int> seen{rank_};
  int rank = first;
  while (const auto waits = peers_[rank].waits_for ? peers_[rank].waits_for : peers_[rank].waits_elsewhere) {
    const int next = *waits;
    // In a circle everybody answers and nobody is missing: the ranks have different deadlines, or are slow.
    if (next < 0 || next >= size() || !seen.insert(rank).second || next == rank_) return first;
    rank = next;
  }
  return rank;
}

/// All ranks answer each other, so that all find the same one at the end of the chain.
void Mesh::tell_for_whom_it_waits() {
  const int peer = waited_for();
  if (peer == rank_ || told_ == peer || tellings_ == kMostTellings) return;
  told_ = peer;
  ++tellings_;
  Notice notice;
  notice.rank = peer;
  notice.text = std::to_string(current_.sequence);
  tell_all(notice);
}

void Mesh::expire() {
  poll_notices(milliseconds(0));
  const int blamed = end_of_chain(waited_for());
  if (peers_[blamed].control_ended) lost(blamed, peers_[blamed].end_reason);
  fail(ErrorCode::DeadlineExceeded, blamed,
       fmt::format("{} did not take part before the deadline", peers_[blamed].sockets.name));
}

void Mesh::cancel() {
  const int peer = waited_for();
  fail(
      ErrorCode::Cancelled, rank_,
      peer == rank_ ? "cancelled" : fmt::format("cancelled while waiting for {}", peers_[peer].sockets.name));
}

void Mesh::fail(ErrorCode code, int blamed, const std::string& text) {
  break_down(code, blamed,
             blamed == rank_ ? fmt::format("{} gave up: {}", peers_[rank_].sockets.name, text) : text);
  throw_error(code, fmt::format("{}: {}", place(), text));
}

void Mesh::give_up(ErrorCode code, const std::string& text) {
  if (broken_) return;
  break_down(code, rank_, fmt::format("{} gave up: {}", peers_[rank_].sockets.name, text));
}

void Mesh::break_down(ErrorCode code, int blamed, const std::string& text) {
  broken_ = make_error(code, text);
  Notice notice;
  notice.kind = Notice::Kind::Failed;
  // Cancelled: this rank was asked to stop, and the others stop with it.
  const bool is_told = code == ErrorCode::DeadlineExceeded || code == ErrorCode::InvalidArgument ||
                       code == ErrorCode::Cancelled;
  notice.code = is_told ? code : ErrorCode::Unavailable;
  notice.rank = blamed;
  notice.text = text;
  tell_all(notice);
  motions_.clear();
  for (auto& peer : peers_) {
    peer.sockets.data = {};
    peer.sockets.control = {};
  }
}

void Mesh::tell_all(const Notice& notice) {
  auto bytes = encode_notice(notice);
  for (int index = 0; index < size(); ++index) {
    auto& peer = peers_[index];
    if (index == rank_ || peer.control_ended || !peer.sockets.control.stream) continue;
    // A notice is far smaller than a socket's buffer; a peer whose buffer is full cannot be helped.
    iovec piece{bytes.data(), bytes.size()};
    peer.sockets.control.stream->write({&piece, 1});
  }
}

}  // namespace braid::comm
