#include "comm/ring/ring_pass.h"

#include <algorithm>
#include <cstring>

#include "comm/reduce.h"

namespace braid::comm {
namespace {
constexpr std::size_t kScratchBytes = 256 << 10;
}

RingPass::RingPass(int left, int right, std::span<const std::byte> first, std::vector<Item> items,
                   DType dtype, ReduceOp op)
    : first_(first),
      items_(std::move(items)),
      dtype_(dtype),
      op_(op),
      sender_(*this, right),
      receiver_(*this, left) {
  sender_.skip_empty();
  receiver_.skip_empty();
}

std::span<const std::byte> RingPass::Sender::item(std::size_t index) const {
  if (index == 0) return pass_.first_;
  auto& received = pass_.items_[index - 1];
  return {received.target, received.bytes};
}

std::span<std::byte> RingPass::Sender::window() {
  if (done()) return {};
  auto bytes = item(item_);
  auto ready = item_ == 0 ? bytes.size() : pass_.receiver_.ready(item_ - 1);
  return {const_cast<std::byte*>(bytes.data()) + offset_, ready - offset_};
}

void RingPass::Sender::moved(std::size_t bytes) {
  offset_ += bytes;
  skip_empty();
}

void RingPass::Sender::skip_empty() {
  while (!done() && offset_ == item(item_).size()) {
    ++item_;
    offset_ = 0;
  }
}

std::span<std::byte> RingPass::Receiver::window() {
  if (done()) return {};
  auto& item = pass_.items_[item_];
  auto left = item.bytes - offset_ - waiting_;
  if (!item.own) return {item.target + offset_, left};
  if (scratch_.empty()) scratch_.resize(kScratchBytes);
  return {scratch_.data() + waiting_, std::min(left, scratch_.size() - waiting_)};
}

void RingPass::Receiver::moved(std::size_t bytes) {
  auto& item = pass_.items_[item_];
  if (!item.own) {
    offset_ += bytes;
  } else {
    waiting_ += bytes;
    auto element = dtype_size(pass_.dtype_);
    auto count = waiting_ / element;
    auto whole = count * element;
    reduce_pair(item.target + offset_, scratch_.data(), item.own + offset_, static_cast<std::int64_t>(count),
                pass_.dtype_, pass_.op_);
    waiting_ -= whole;
    std::memmove(scratch_.data(), scratch_.data() + whole, waiting_);
    offset_ += whole;
  }
  skip_empty();
}

void RingPass::Receiver::skip_empty() {
  while (!done() && offset_ == pass_.items_[item_].bytes) {
    ++item_;
    offset_ = 0;
  }
}

std::size_t RingPass::Receiver::ready(std::size_t item) const {
  if (item < item_) return pass_.items_[item].bytes;
  return item == item_ ? offset_ : 0;
}

}  // namespace braid::comm
