// What ranks tell each other when an operation does not end: for whom one waits, or why one has failed. Sent
// over a socket of its own, so that it arrives although the data socket is in the middle of something.
//
//   notice := header text        header: u32 kind, u32 code, i32 rank, u32 text_bytes; little-endian
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/transport/stream.h"

namespace braid::comm {

struct Notice {
  /// On the wire: never renumber.
  enum class Kind : std::uint32_t { Waiting = 1, Failed = 2 };
  Kind kind = Kind::Waiting;
  ErrorCode code = ErrorCode::DeadlineExceeded;  // Failed
  std::int32_t rank = 0;                         // Waiting: for whom; Failed: who is to blame
  std::string text;  // Waiting: the number of the collective; Failed: what happened
};

std::vector<std::byte> encode_notice(const Notice& notice);

/// Cuts what a control socket brings into notices.
class NoticeReader {
 public:
  /// Reads what is there. `status` says how the reading ended. Throws: DataLoss.
  void read(Stream& stream, IoStatus& status);
  std::optional<Notice> next();

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace braid::comm
