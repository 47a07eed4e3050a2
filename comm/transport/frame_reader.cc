#include "comm/transport/frame_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace braid::comm {
namespace {
constexpr std::size_t kBufferBytes = 64 << 10;
// Streams of large frames: payload bytes that come into the buffer with a header are copied once more, so ask
// for few.
constexpr std::size_t kLargePayload = 16 << 10;
constexpr std::size_t kFewBytes = 1 << 10;
// A header may promise much; memory for it is taken as it comes.
constexpr std::size_t kFirstMeta = 64 << 10;
}  // namespace

FrameReader::FrameReader(Callbacks callbacks) : callbacks_(std::move(callbacks)) {}

std::size_t FrameReader::prepare(std::span<iovec> out) {
  if (buffer_.empty()) buffer_.resize(kBufferBytes);  // not for peers that never come to send a frame
  if (halted_) begin_ = end_ = 0;
  if (begin_ == end_) {
    begin_ = end_ = 0;
  } else if (begin_ > 0) {  // a piece of a header: less than kFrameHeaderBytes
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  std::size_t used = 0;
  if (!halted_ && state_ == State::Meta) {
    out[used++] = {meta_.data() + meta_filled_, meta_.size() - meta_filled_};
    return used;  // whether a payload follows directly, and to where, is not known yet
  }
  if (!halted_ && state_ == State::Payload && sink_) {
    auto& destinations = sink_->destinations;
    for (std::size_t i = destination_; i < destinations.size() && used + 1 < out.size(); ++i) {
      auto piece = i == destination_ ? destinations[i].subspan(offset_) : destinations[i];
      if (!piece.empty()) out[used++] = {piece.data(), piece.size()};
    }
    std::uint64_t offered = 0;
    for (std::size_t i = 0; i < used; ++i) offered += out[i].iov_len;
    if (offered < payload_left_) return used;
  }
  // The next frame most often resembles the last one.
  bool few = !halted_ && header_.payload_bytes >= kLargePayload && (state_ == State::Header || sink_);
  out[used++] = {buffer_.data() + end_, few ? kFewBytes : buffer_.size() - end_};
  return used;
}

void FrameReader::commit(std::size_t bytes) {
  if (halted_) return;
  if (state_ == State::Meta) {
    meta_filled_ += bytes;
    bytes = 0;
  } else if (state_ == State::Payload && sink_) {
    auto direct = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, payload_left_));
    advance_destinations(direct);
    bytes -= direct;
  }
  end_ += bytes;
  parse();
}

void FrameReader::parse() {
  bool progress = true;
  while (progress && !halted_) {
    switch (state_) {
      case State::Header:
        progress = parse_header();
        break;
      case State::Meta:
        progress = parse_meta();
        break;
      case State::Payload:
        progress = parse_payload();
        break;
    }
  }
}

bool FrameReader::parse_header() {
  if (end_ - begin_ < kFrameHeaderBytes) return false;
  copy_out(raw_);
  header_ = decode_frame_header(raw_);
  meta_.resize(std::min<std::size_t>(header_.meta_bytes, kFirstMeta));
  meta_filled_ = 0;
  state_ = State::Meta;
  return true;
}

bool FrameReader::parse_meta() {
  for (;;) {
    meta_filled_ += copy_out(MutableBytes(meta_).subspan(meta_filled_));
    if (meta_filled_ < meta_.size()) return false;
    if (meta_.size() == header_.meta_bytes) break;
    meta_.resize(std::min<std::size_t>(header_.meta_bytes, 2 * meta_.size()));
  }
  check_frame_crc(raw_, meta_);
  start_payload();
  return true;
}

void FrameReader::start_payload() {
  state_ = State::Payload;
  payload_left_ = header_.payload_bytes;
  destination_ = offset_ = 0;
  sink_.reset();
  sink_ = callbacks_.on_head(header_, meta_);
  if (!sink_) return;
  std::uint64_t room = 0;
  for (auto& destination : sink_->destinations) room += destination.size();
  if (room != header_.payload_bytes)
    throw Internal(fmt::format("[transport] the destinations for a payload of {} bytes have {} bytes",
                               header_.payload_bytes, room));
}

bool FrameReader::parse_payload() {
  while (payload_left_ > 0 && begin_ != end_) {
    if (!sink_) {
      auto skipped = static_cast<std::size_t>(std::min<std::uint64_t>(payload_left_, end_ - begin_));
      begin_ += skipped;
      payload_left_ -= skipped;
    } else {
      auto piece = sink_->destinations[destination_].subspan(offset_);
      advance_destinations(copy_out(piece));
    }
  }
  if (payload_left_ > 0) return false;
  finish_frame();
  return true;
}

void FrameReader::finish_frame() {
  state_ = State::Header;
  if (!sink_) return;
  auto sink = std::move(*sink_);
  sink_.reset();
  callbacks_.on_frame(header_, std::move(meta_), std::move(sink));
  meta_ = {};
}

void FrameReader::advance_destinations(std::size_t bytes) {
  payload_left_ -= bytes;
  auto& destinations = sink_->destinations;
  offset_ += bytes;
  while (destination_ < destinations.size() && offset_ >= destinations[destination_].size()) {
    offset_ -= destinations[destination_].size();
    ++destination_;
  }
}

std::size_t FrameReader::copy_out(MutableBytes to) {
  auto bytes = std::min(to.size(), end_ - begin_);
  if (bytes > 0) std::memcpy(to.data(), buffer_.data() + begin_, bytes);
  begin_ += bytes;
  return bytes;
}

void FrameReader::abandon_payload(std::uint64_t id) {
  if (state_ == State::Payload && sink_ && header_.id == id) sink_.reset();
}

}  // namespace braid::comm
