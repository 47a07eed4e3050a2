#include "ps/wire.h"

#include <fmt/format.h>

#include <bit>
#include <concepts>

namespace braid::ps {
namespace {

// A count beyond this is damage; it also keeps the sums of bytes below 2^63.
constexpr std::uint64_t kMaxCount = std::uint64_t{1} << 40;
constexpr int kKindShift = 8;  // of a pull's kind in its flags

class Writer {
 public:
  template <std::unsigned_integral T>
  void integer(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i)
      out_.push_back(static_cast<std::byte>((value >> (8 * i)) & 0xff));
  }
  void real(float value) { integer(std::bit_cast<std::uint32_t>(value)); }
  void text(const std::string& value) {
    integer(static_cast<std::uint32_t>(value.size()));
    for (char c : value) out_.push_back(static_cast<std::byte>(c));
  }
  void sender(const Sender& s) {
    integer(s.job);
    integer(s.incarnation);
    integer(s.instance);
    integer(s.session);
    integer(static_cast<std::uint32_t>(s.worker));
  }
  void parts(const std::vector<PartHead>& parts) {
    integer(static_cast<std::uint32_t>(parts.size()));
    for (const PartHead& part : parts) {
      integer(part.table);
      integer(part.width);
      integer(part.count);
    }
  }
  Meta take() { return std::move(out_); }

 private:
  Meta out_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> in) : in_(in) {}

  template <std::unsigned_integral T>
  T integer() {
    need(sizeof(T));
    T value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i)
      value |= static_cast<T>(static_cast<T>(in_[at_ + i]) << (8 * i));
    at_ += sizeof(T);
    return value;
  }
  float real() { return std::bit_cast<float>(integer<std::uint32_t>()); }
  std::string text() {
    const auto size = integer<std::uint32_t>();
    need(size);
    std::string value(reinterpret_cast<const char*>(in_.data() + at_), size);
    at_ += size;
    return value;
  }
  Sender sender() {
    Sender s;
    s.job = integer<std::uint64_t>();
    s.incarnation = integer<std::uint64_t>();
    s.instance = integer<std::uint64_t>();
    s.session = integer<std::uint64_t>();
    s.worker = static_cast<std::int32_t>(integer<std::uint32_t>());
    return s;
  }
  std::vector<PartHead> parts() {
    const auto count = integer<std::uint32_t>();
    need(std::size_t{count} * 16);
    std::vector<PartHead> parts(count);
    for (PartHead& part : parts) {
      part.table = integer<std::uint32_t>();
      part.width = integer<std::uint32_t>();
      part.count = integer<std::uint64_t>();
      if (part.width == 0 || part.count > kMaxCount / part.width)
        throw DataLoss(fmt::format("[ps] bad message: a part of {} x {} elements", part.count, part.width));
    }
    return parts;
  }
  void end() const {
    if (at_ != in_.size())
      throw DataLoss(
          fmt::format("[ps] bad message: {} bytes of meta where {} were expected", in_.size(), at_));
  }

 private:
  void need(std::size_t bytes) const {
    if (in_.size() - at_ < bytes)
      throw DataLoss(fmt::format("[ps] bad message: the meta of {} bytes is cut short", in_.size()));
  }

  std::span<const std::byte> in_;
  std::size_t at_ = 0;
};

}  // namespace

Meta encode(const PushHead& head) {
  Writer out;
  out.sender(head.sender);
  out.integer(head.step);
  out.integer(head.sequence);
  out.integer(head.examples);
  out.integer(static_cast<std::uint32_t>((head.votes_to_stop ? 1 : 0) | (head.votes_to_finish ? 2 : 0) |
                                         (head.ordered ? 4 : 0) | (head.trial ? 8 : 0)));
  out.real(head.params.learning_rate);
  out.real(head.params.grad_scale);
  out.integer(head.params.step);
  out.parts(head.dense);
  out.parts(head.sparse);
  return out.take();
}

PushHead decode_push(std::span<const std::byte> meta) {
  Reader in(meta);
  PushHead head;
  head.sender = in.sender();
  head.step = in.integer<std::uint64_t>();
  head.sequence = in.integer<std::uint32_t>();
  head.examples = in.integer<std::uint32_t>();
  const auto votes = in.integer<std::uint32_t>();
  head.votes_to_stop = (votes & 1) != 0;
  head.votes_to_finish = (votes & 2) != 0;
  head.ordered = (votes & 4) != 0;
  head.trial = (votes & 8) != 0;
  head.params.learning_rate = in.real();
  head.params.grad_scale = in.real();
  head.params.step = in.integer<std::uint64_t>();
  head.dense = in.parts();
  head.sparse = in.parts();
  in.end();
  return head;
}

Meta encode(const PullHead& head) {
  Writer out;
  out.sender(head.sender);
  out.integer(head.min_version);
  out.integer(head.timeout_ms);
  out.integer(static_cast<std::uint32_t>((head.insert ? 1 : 0) | (head.ordered ? 2 : 0) |
                                         (head.slots ? 4 : 0) | (head.trial ? 8 : 0) |
                                         static_cast<std::uint32_t>(head.kind) << kKindShift));
  out.integer(head.ahead);
  out.parts(head.dense);
  out.parts(head.sparse);
  return out.take();
}

PullHead decode_pull(std::span<const std::byte> meta) {
  Reader in(meta);
  PullHead head;
  head.sender = in.sender();
  head.min_version = in.integer<std::uint64_t>();
  head.timeout_ms = in.integer<std::uint32_t>();
  const auto flags = in.integer<std::uint32_t>();
  head.insert = (flags & 1) != 0;
  head.ordered = (flags & 2) != 0;
  head.slots = (flags & 4) != 0;
  head.trial = (flags & 8) != 0;
  if (flags >> kKindShift > static_cast<std::uint32_t>(PullKind::Changed))
    throw DataLoss(fmt::format("[ps] bad message: a pull of kind {}", flags >> kKindShift));
  head.kind = static_cast<PullKind>(flags >> kKindShift);
  head.ahead = in.integer<std::uint64_t>();
  head.dense = in.parts();
  head.sparse = in.parts();
  in.end();
  return head;
}

Meta encode(const Sender& sender) {
  Writer out;
  out.sender(sender);
  return out.take();
}

Sender decode_heartbeat(std::span<const std::byte> meta) {
  Reader in(meta);
  const Sender sender = in.sender();
  in.end();
  return sender;
}

Meta encode(const ReplyHead& head) {
  Writer out;
  out.integer(static_cast<std::uint32_t>(head.error ? static_cast<int>(head.error->code) : 0));
  out.integer(static_cast<std::uint32_t>(head.result));
  out.integer(head.version);
  out.integer(
      static_cast<std::uint32_t>((head.stop ? 1 : 0) | (head.finish ? 2 : 0) | (head.unknown ? 4 : 0)));
  out.integer(head.repaired);
  out.text(head.error ? head.error->message : head.reason);
  return out.take();
}

ReplyHead decode_reply(std::span<const std::byte> meta) {
  Reader in(meta);
  ReplyHead head;
  const auto code = in.integer<std::uint32_t>();
  head.result = static_cast<PushResult>(in.integer<std::uint32_t>());
  head.version = in.integer<std::uint64_t>();
  const auto stops = in.integer<std::uint32_t>();
  head.stop = (stops & 1) != 0;
  head.finish = (stops & 2) != 0;
  head.unknown = (stops & 4) != 0;
  head.repaired = in.integer<std::uint64_t>();
  head.reason = in.text();
  in.end();
  if (code != 0) head.error = make_error(static_cast<ErrorCode>(code), std::move(head.reason));
  return head;
}

std::uint64_t key_bytes(const std::vector<PartHead>& sparse) {
  std::uint64_t bytes = 0;
  for (const PartHead& part : sparse) bytes += part.count * sizeof(std::int64_t);
  return bytes;
}

std::uint64_t sent_bytes(const PullHead& head) {
  const std::uint64_t keys = key_bytes(head.sparse);
  return head.kind == PullKind::Changed ? keys + keys / sizeof(std::int64_t) * sizeof(std::uint32_t) : keys;
}

std::uint64_t value_bytes(const std::vector<PartHead>& parts) {
  std::uint64_t bytes = 0;
  for (const PartHead& part : parts) bytes += part.count * part.width * sizeof(float);
  return bytes;
}

void locate(const PushHead& head, const std::byte* payload, std::vector<DensePart>& dense,
            std::vector<SparsePart>& sparse) {
  const auto* keys = reinterpret_cast<const std::int64_t*>(payload);
  const auto* values = reinterpret_cast<const float*>(payload + key_bytes(head.sparse));
  for (const PartHead& part : head.dense) {
    dense.push_back({part.table, {values, part.count}});
    values += part.count;
  }
  for (const PartHead& part : head.sparse) {
    sparse.push_back({part.table, part.width, {keys, part.count}, values, head.ordered});
    keys += part.count;
    values += part.count * part.width;
  }
}

void locate(const PullHead& head, const std::byte* payload, std::vector<SparsePart>& sparse) {
  const auto* keys = reinterpret_cast<const std::int64_t*>(payload);
  const auto* known = reinterpret_cast<const std::uint32_t*>(payload + key_bytes(head.sparse));
  for (const PartHead& part : head.sparse) {
    sparse.push_back({part.table, part.width, {keys, part.count}, nullptr, head.ordered});
    keys += part.count;
    if (head.kind != PullKind::Changed) continue;
    sparse.back().known = {known, part.count};
    known += part.count;
  }
}

}  // namespace braid::ps
