// Cuts a byte stream into frames. The owner asks where the next bytes go (prepare), reads from its socket
// into these places, and says how many came (commit). Payload bytes go straight to the destinations that
// on_head chose; only what arrived together with a header passes through the reader's own buffer. Knows no
// sockets; one thread.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "comm/transport/frame.h"
#include "comm/transport/transport.h"

namespace braid::comm {

class FrameReader {
 public:
  struct Callbacks {
    /// Where the payload lands; nothing: it is skipped and on_frame is not called.
    std::function<std::optional<PayloadSink>(const FrameHeader&, Bytes meta)> on_head;
    std::function<void(const FrameHeader&, std::vector<std::byte> meta, PayloadSink)> on_frame;
  };

  explicit FrameReader(Callbacks callbacks);

  /// Fills `out` with the places for the next bytes, in order. Returns how many entries were filled, at least
  /// one.
  std::size_t prepare(std::span<iovec> out);
  /// `bytes` were read into the places of the last prepare(). Calls back for every head and frame that is
  /// complete. Throws: DataLoss for a bad frame, Internal for a sink of the wrong size; the stream is then
  /// unusable.
  void commit(std::size_t bytes);

  /// The payload that is being read is skipped from now on, if it belongs to frame `id`.
  void abandon_payload(std::uint64_t id);
  /// No more callbacks: what arrives is thrown away.
  void halt() { halted_ = true; }
  /// In the middle of a frame.
  bool mid_frame() const { return state_ != State::Header || begin_ != end_; }

 private:
  enum class State { Header, Meta, Payload };

  void parse();
  bool parse_header();
  bool parse_meta();
  bool parse_payload();
  void start_payload();
  void finish_frame();
  void advance_destinations(std::size_t bytes);
  std::size_t copy_out(MutableBytes to);

  Callbacks callbacks_;
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0;  // unparsed bytes are [begin_, end_)
  std::size_t end_ = 0;
  bool halted_ = false;

  State state_ = State::Header;
  EncodedHeader raw_{};
  FrameHeader header_;
  std::vector<std::byte> meta_;
  std::size_t meta_filled_ = 0;
  std::optional<PayloadSink> sink_;  // empty: the payload is skipped
  std::uint64_t payload_left_ = 0;
  std::size_t destination_ = 0;  // the next byte goes to destinations[destination_][offset_]
  std::size_t offset_ = 0;
};

}  // namespace braid::comm
