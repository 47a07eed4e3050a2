// The messages of the parameter server's data plane: the meta part of each, encoded and decoded, and where
// the pieces of its payload lie. docs/design/formats/wire.md has the grammar. Little-endian throughout.
// Thread rule: pure functions. Throws: DataLoss for a meta that is cut short or says what cannot be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ps/server/requests.h"

namespace braid::ps {

/// On the wire: never renumber.
enum class MessageType : std::uint16_t { Push = 1, Pull = 2, Assign = 3, Heartbeat = 4 };

/// `count` elements of a dense table (width 1), or `count` keys with rows of `width` elements.
struct PartHead {
  std::uint32_t table = 0;
  std::uint32_t width = 1;
  std::uint64_t count = 0;
};

/// Push and Assign. Payload: keys of all sparse parts, values of all dense parts, rows of all sparse parts.
struct PushHead {
  Sender sender;
  std::uint64_t step = 0;
  std::uint32_t sequence = 0;
  std::uint32_t examples = 0;
  UpdateParams params;
  std::vector<PartHead> dense;
  std::vector<PartHead> sparse;
  bool votes_to_stop = false;
  bool votes_to_finish = false;
  bool ordered = false;  // the keys of each part rise by bucket_of_hash()
  bool trial = false;    // for its time alone
};

/// Pull. Payload: keys of all sparse parts. The answer's: values of all dense parts, rows of all sparse
/// parts; of a repair in their place `repaired` numbers (u32) of keys of the pull ahead, counted through all
/// its parts, and their rows. Of Changed what the worker knows of each key (u32) follows the keys, and the
/// answer is as a repair's.
struct PullHead {
  Sender sender;
  std::uint64_t min_version = 0;
  std::uint32_t timeout_ms = 0;  // how long the server may keep it parked
  bool insert = true;
  std::vector<PartHead> dense;
  std::vector<PartHead> sparse;  // of a repair: none, the pull ahead has named them
  bool ordered = false;          // the keys of each part rise by bucket_of_hash()
  PullKind kind = PullKind::Plain;
  std::uint64_t ahead = 0;
  bool slots = false;  // rows come with their slots, and the parts' width is of both
  bool trial = false;  // for its time alone
};

/// The answer to every message. With an error there is no payload.
struct ReplyHead {
  ErrorPtr error;
  PushResult result = PushResult::Applied;
  std::string reason;
  std::uint64_t version = 0;
  bool stop = false;    // of a pull: see PullAnswer
  bool finish = false;  // the same
  bool unknown = false;
  std::uint64_t repaired = 0;
};

using Meta = std::vector<std::byte>;

Meta encode(const PushHead& head);
Meta encode(const PullHead& head);
Meta encode(const Sender& sender);  // Heartbeat
Meta encode(const ReplyHead& head);

PushHead decode_push(std::span<const std::byte> meta);
PullHead decode_pull(std::span<const std::byte> meta);
Sender decode_heartbeat(std::span<const std::byte> meta);
ReplyHead decode_reply(std::span<const std::byte> meta);

/// Bytes of the keys, and of the values and rows, of these parts; of what a pull sends.
std::uint64_t key_bytes(const std::vector<PartHead>& sparse);
std::uint64_t sent_bytes(const PullHead& head);
std::uint64_t value_bytes(const std::vector<PartHead>& parts);

/// The parts of a push whose payload lies at `payload`. REQUIRES: it has key_bytes + value_bytes bytes.
void locate(const PushHead& head, const std::byte* payload, std::vector<DensePart>& dense,
            std::vector<SparsePart>& sparse);
/// The keys of a pull.
void locate(const PullHead& head, const std::byte* payload, std::vector<SparsePart>& sparse);

}  // namespace braid::ps
