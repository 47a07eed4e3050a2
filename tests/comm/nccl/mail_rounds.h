// Rounds of messages through slots that ranks write in each other's memory, whose contents say who sent them
// and when. Ranks may share a GPU (exchange_rounds.h). Thread rule: a thread a rank.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "base/error.h"
#include "comm/mailbox.h"
#include "tests/comm/nccl/device_array.h"

namespace braid::comm {

struct MailParty {
  int rank, size;
  std::function<std::shared_ptr<Mailbox>(const std::vector<MailSlot>&)> open;
  std::function<void()> meet;  // returns when all have come
};

/// A message of parts of these many floats.
class MailMessage {
 public:
  explicit MailMessage(const std::vector<std::size_t>& floats) : floats_(floats) {
    for (const std::size_t count : floats_) {
      arrays_.push_back(std::make_unique<DeviceArray>(count, -1));
      parts_.push_back({arrays_.back()->get(), static_cast<std::int64_t>(count * sizeof(float))});
    }
  }
  const std::vector<MailPart>& parts() const { return parts_; }
  std::int64_t room() const {
    std::int64_t all = 0;
    for (const MailPart& part : parts_) all += mail_room({&part.bytes, 1});
    return all;
  }
  void fill(float value) {
    for (std::size_t p = 0; p < arrays_.size(); ++p) arrays_[p]->write(numbers(p, value));
  }
  void expect(float value) const {
    for (std::size_t p = 0; p < arrays_.size(); ++p) EXPECT_EQ(arrays_[p]->read(), numbers(p, value));
  }

 private:
  std::vector<float> numbers(std::size_t part, float value) const {
    std::vector<float> all(floats_[part]);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = value + static_cast<float>(i % 1013 + part);
    return all;
  }

  const std::vector<std::size_t> floats_;
  std::vector<std::unique_ptr<DeviceArray>> arrays_;
  std::vector<MailPart> parts_;
};

/// Every rank sends to the next one, large and small messages, each of them twice into the same slot before
/// anybody takes one: the second waits. As calls, and as a captured graph that is replayed.
inline void exchange_mail(const MailParty& party) {
  const int before = (party.rank + party.size - 1) % party.size;
  const std::vector<std::vector<std::size_t>> shapes{{300'000, 7}, {5}, {1, 1023, 3}, {16'384}, {16'385}};
  for (const std::vector<std::size_t>& shape : shapes) {
    MailMessage first(shape), second(shape), got_first(shape), got_second(shape);
    std::vector<MailSlot> slots;
    for (int rank = 0; rank < party.size; ++rank)
      slots.push_back({rank, (rank + 1) % party.size, first.room()});
    const std::shared_ptr<Mailbox> mail = party.open(slots);
    ASSERT_TRUE(mail);
    const cuda::Stream out = cuda::make_stream(), in = cuda::make_stream();
    cudaGraphExec_t sends{}, takes{};
    const auto capture = [](const cuda::Stream& stream, auto&& enqueue) {
      cudaGraph_t graph{};
      cudaGraphExec_t made{};
      BRAID_CUDA_CHECK(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
      enqueue();
      BRAID_CUDA_CHECK(cudaStreamEndCapture(stream.get(), &graph));
      BRAID_CUDA_CHECK(cudaGraphInstantiate(&made, graph, 0));
      BRAID_CUDA_CHECK(cudaGraphDestroy(graph));
      return made;
    };
    const auto send = [&] {
      mail->send(party.rank, first.parts(), ref(out));
      mail->send(party.rank, second.parts(), ref(out));
    };
    const auto take = [&] {
      mail->recv(before, got_first.parts(), ref(in));
      mail->recv(before, got_second.parts(), ref(in));
    };
    sends = capture(out, send);
    takes = capture(in, take);
    for (int round = 0; round < 6; ++round) {
      const auto says = [&](int rank, int which) {
        return static_cast<float>(100 * round + 10 * rank + which);
      };
      first.fill(says(party.rank, 0));
      second.fill(says(party.rank, 1));
      party.meet();
      if (round % 2 == 0) {
        send();
        take();
      } else {
        BRAID_CUDA_CHECK(cudaGraphLaunch(sends, out.get()));
        BRAID_CUDA_CHECK(cudaGraphLaunch(takes, in.get()));
      }
      finish(out);
      finish(in);
      party.meet();
      got_first.expect(says(before, 0));
      got_second.expect(says(before, 1));
    }
    party.meet();
    EXPECT_THROW(mail->send(before, first.parts(), ref(out)), InvalidArgument) << "a slot of another rank";
    EXPECT_THROW(mail->recv(party.size, first.parts(), ref(in)), InvalidArgument) << "no such slot";
    const MailMessage large({static_cast<std::size_t>(first.room()) / sizeof(float) + 1});
    EXPECT_THROW(mail->send(party.rank, large.parts(), ref(out)), InvalidArgument) << "no room";
    for (cudaGraphExec_t graph : {sends, takes}) BRAID_CUDA_CHECK(cudaGraphExecDestroy(graph));
    party.meet();
  }
}

}  // namespace braid::comm
