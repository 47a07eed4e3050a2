// The two flows of a ring: what comes from the left neighbour, item by item, goes on to the right one, after
// it was reduced with this rank's own part where the item is to be reduced. Item t + 1 of what is sent is
// item t of what was received, so a byte goes on as soon as it is there: the ring is a pipeline of bytes and
// not of whole items.
#pragma once

#include <cstddef>
#include <vector>

#include "base/dtype.h"
#include "comm/communicator.h"
#include "comm/ring/flow.h"

namespace braid::comm {

class RingPass {
 public:
  struct Item {
    std::byte* target;     // where the received (or reduced) item is put
    const std::byte* own;  // this rank's part, to be reduced with; null: the item is only copied
    std::size_t bytes;
  };

  /// `first` is sent first, then every received item but the last. REQUIRES: items are not empty.
  RingPass(int left, int right, std::span<const std::byte> first, std::vector<Item> items, DType dtype,
           ReduceOp op);

  Flow& sender() { return sender_; }
  Flow& receiver() { return receiver_; }

 private:
  class Sender final : public Flow {
   public:
    Sender(RingPass& pass, int peer) : Flow(peer, Direction::Send), pass_(pass) {}
    std::span<std::byte> window() override;
    void moved(std::size_t bytes) override;
    bool done() const override { return item_ == pass_.items_.size(); }
    void skip_empty();

   private:
    std::span<const std::byte> item(std::size_t index) const;
    RingPass& pass_;
    std::size_t item_ = 0;
    std::size_t offset_ = 0;
  };
  class Receiver final : public Flow {
   public:
    Receiver(RingPass& pass, int peer) : Flow(peer, Direction::Receive), pass_(pass) {}
    std::span<std::byte> window() override;
    void moved(std::size_t bytes) override;
    bool done() const override { return item_ == pass_.items_.size(); }
    void skip_empty();
    /// Bytes of a received item that are ready to be sent on.
    std::size_t ready(std::size_t item) const;

   private:
    RingPass& pass_;
    std::size_t item_ = 0;
    std::size_t offset_ = 0;   // bytes of the item that are in place
    std::size_t waiting_ = 0;  // bytes at the front of scratch_ that are not reduced yet: part of an element
    std::vector<std::byte> scratch_;
  };

  const std::span<const std::byte> first_;
  const std::vector<Item> items_;
  const DType dtype_;
  const ReduceOp op_;
  Sender sender_;
  Receiver receiver_;
};

}  // namespace braid::comm
