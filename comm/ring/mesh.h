// The connected ranks of a ring communicator: moves the flows of one operation at a time, checks that both
// ends mean the same operation, and finds out who is to blame when it does not end.
//
// Who is to blame: a rank that passes its deadline tells all others for which rank it waits, and those in the
// operation answer in kind. Following "a waits for b waits for c" from itself, a rank ends at one that does
// not answer: that is the missing one. A rank that fails for another reason tells why, and the others fail
// with the same reason.
//
// Thread rule: one thread, except abort().
#pragma once

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "base/wait_context.h"
#include "comm/ring/connect_mesh.h"
#include "comm/ring/flow.h"
#include "comm/ring/notice.h"

namespace braid::comm {

/// On the wire: never renumber.
enum class Operation : std::uint16_t {
  AllReduce = 1,
  ReduceScatter = 2,
  AllGather = 3,
  Broadcast = 4,
  AllToAll = 5,
  SendRecv = 6,
  Barrier = 7,
  AllToAllCounts = 8,
};
std::string_view operation_name(Operation operation);

/// What the ranks must agree on; travels in front of each flow. Little-endian.
struct OperationHeader {
  std::uint32_t magic = 0x504f4e52;  // "RNOP"
  Operation operation = Operation::Barrier;
  std::uint16_t dtype = 0;
  std::int64_t count = 0;
  std::int32_t argument = 0;  // the reduction or the root
  std::uint32_t reserved = 0;
  std::uint64_t sequence = 0;  // counts collectives; 0 for send and recv

  std::string text() const;
  friend bool operator==(const OperationHeader&, const OperationHeader&) = default;
};

class Mesh {
 public:
  Mesh(int rank, std::vector<PeerSockets> peers);
  ~Mesh();
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }

  /// Moves all flows to their ends. The sequence number is filled in. Any throw breaks the mesh.
  void run(OperationHeader header, std::span<Flow* const> flows, const WaitContext& wait);
  /// Breaks the mesh and tells the others why. REQUIRES: called from the thread of run(), outside of it.
  void give_up(ErrorCode code, const std::string& text);
  void throw_if_broken() const;
  void abort();

 private:
  struct Peer {
    PeerSockets sockets;
    NoticeReader notices;
    bool control_ended = false;
    std::string end_reason;
    std::optional<int> waits_for;        // it said so of this operation
    std::optional<int> waits_elsewhere;  // the same of another one
  };
  struct Motion {
    Flow* flow;
    OperationHeader header;    // sent in front, or received
    OperationHeader expected;  // to be received
    std::size_t header_left = sizeof(OperationHeader);
    bool flushed = false;
    std::optional<Readiness> blocked;
  };

  /// One call on the flow's socket. Whether something moved.
  bool pump(Motion& motion);
  static bool finished(const Motion& motion);
  void wait_for_events(const WaitContext& wait);
  int look_for_events(std::span<pollfd> entries);
  void read_notices(int peer);
  void take_notice(int peer, const Notice& notice);
  [[noreturn]] void lost(int peer, const std::string& reason);
  void tell_for_whom_it_waits();
  [[noreturn]] void expire();
  [[noreturn]] void cancel();
  [[noreturn]] void fail(ErrorCode code, int blamed, const std::string& text);
  int waited_for() const;
  int end_of_chain(int first) const;
  void poll_notices(std::chrono::milliseconds limit);
  void tell_all(const Notice& notice);
  void break_down(ErrorCode code, int blamed, const std::string& text);
  std::string place() const;

  const int rank_;
  std::vector<Peer> peers_;
  std::uint64_t collectives_ = 0;
  OperationHeader current_;
  std::vector<Motion> motions_;
  std::optional<int> told_;  // for whom the others know this rank to wait, in the current operation
  int tellings_ = 0;
  int waits_without_looks_ = 0;
  ErrorPtr broken_;
  std::atomic<bool> aborted_{false};
  Fd wake_;  // an eventfd: abort() and stop requests end a poll()
};

}  // namespace braid::comm
