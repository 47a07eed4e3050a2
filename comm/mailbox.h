// Messages between pairs of ranks whose places never change, prepared once and sent in every step: each goes
// into a slot, which is memory of the rank that takes it and which the sender writes by itself. Neither side
// has a kernel that waits on many multiprocessors, as messages through NCCL have: a receiver that is early
// takes nothing from what computes beside it. Backends that have nothing better than send() and recv() do
// without (Communicator::open_mailbox).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/stream_ref.h"

namespace braid::comm {

/// From one rank to another. `bytes`: room for a message, mail_room() of it.
struct MailSlot {
  int from = 0, to = 0;
  std::int64_t bytes = 0;
};

/// A contiguous piece of a message. send() reads it, recv() writes it.
struct MailPart {
  void* data = nullptr;
  std::int64_t bytes = 0;
};

/// What a slot needs for a message of parts of these sizes.
inline std::int64_t mail_room(std::span<const std::int64_t> part_bytes) {
  constexpr std::int64_t kLine = 256;
  std::int64_t room = 0;
  for (const std::int64_t bytes : part_bytes) room += (bytes + kLine - 1) / kLine * kLine;
  return room;
}

class Mailbox {
 public:
  virtual ~Mailbox() = default;
  /// Enqueues a message to the slot's `to`. On the stream it waits until the message before it was taken out
  /// of the slot. `parts` is read during the call, the memory by the stream. Throws: InvalidArgument for a
  /// slot of another rank, or too small.
  virtual void send(int slot, std::span<const MailPart> parts, StreamRef stream) = 0;
  /// Enqueues taking the slot's next message, of parts of the same sizes, and waits for it on the stream. A
  /// rank that does not come in time breaks the communicator, which ends the wait; the parts are undefined
  /// then. Throws: as send().
  virtual void recv(int slot, std::span<const MailPart> parts, StreamRef stream) = 0;
};

}  // namespace braid::comm
