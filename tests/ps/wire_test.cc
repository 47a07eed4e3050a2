#include "ps/wire.h"

#include <gtest/gtest.h>

namespace braid::ps {
namespace {

const Sender kSender{11, 12, 13, 14, -1};

void expect_sender(const Sender& s) {
  EXPECT_EQ(s.job, 11U);
  EXPECT_EQ(s.incarnation, 12U);
  EXPECT_EQ(s.instance, 13U);
  EXPECT_EQ(s.session, 14U);
  EXPECT_EQ(s.worker, -1);
}

TEST(PsWireTest, PushSurvives) {
  const PushHead head{kSender, 17, 3, 64, {0.5F, 0.25F, 17}, {{0, 1, 100}, {4, 1, 7}}, {{2, 16, 9}}, true};
  const PushHead back = decode_push(encode(head));
  expect_sender(back.sender);
  EXPECT_EQ(back.step, 17U);
  EXPECT_EQ(back.sequence, 3U);
  EXPECT_EQ(back.examples, 64U);
  EXPECT_TRUE(back.votes_to_stop);
  EXPECT_FALSE(back.votes_to_finish);
  PushHead last = head;
  last.votes_to_finish = true;
  EXPECT_TRUE(decode_push(encode(last)).votes_to_finish);
  EXPECT_EQ(back.params.learning_rate, 0.5F);
  EXPECT_EQ(back.params.grad_scale, 0.25F);
  EXPECT_EQ(back.params.step, 17U);
  ASSERT_EQ(back.dense.size(), 2U);
  EXPECT_EQ(back.dense[1].table, 4U);
  EXPECT_EQ(back.sparse[0].width, 16U);
  EXPECT_EQ(key_bytes(back.sparse), 72U);
  EXPECT_EQ(value_bytes(back.dense) + value_bytes(back.sparse), 4U * (107 + 144));
}

TEST(PsWireTest, PullAndReplySurvive) {
  const PullHead back = decode_pull(encode(PullHead{kSender, 5, 250, false, {{1, 1, 10}}, {}}));
  expect_sender(back.sender);
  EXPECT_EQ(back.min_version, 5U);
  EXPECT_EQ(back.timeout_ms, 250U);
  EXPECT_FALSE(back.insert);
  expect_sender(decode_heartbeat(encode(kSender)));
  PullHead repair{kSender, 5, 250, true, {}, {}};
  repair.ordered = true;
  repair.kind = PullKind::Repair;
  repair.ahead = 77;
  const PullHead its = decode_pull(encode(repair));
  EXPECT_TRUE(its.insert && its.ordered);
  EXPECT_EQ(its.kind, PullKind::Repair);
  EXPECT_EQ(its.ahead, 77U);
  PullHead changed{kSender, 5, 250, true, {}, {{3, 8, 10}, {4, 8, 2}}};
  changed.kind = PullKind::Changed;
  changed.slots = true;
  const PullHead known = decode_pull(encode(changed));
  EXPECT_EQ(known.kind, PullKind::Changed);
  EXPECT_TRUE(known.slots);
  EXPECT_EQ(sent_bytes(known), 12U * (sizeof(std::int64_t) + sizeof(std::uint32_t)));
  EXPECT_EQ(sent_bytes(its), 0U);
  EXPECT_FALSE(back.ordered);
  EXPECT_EQ(back.kind, PullKind::Plain);
  const ReplyHead repaired = decode_reply(encode(ReplyHead{nullptr, {}, {}, 3, false, false, true, 123}));
  EXPECT_TRUE(repaired.unknown);
  EXPECT_EQ(repaired.repaired, 123U);
  const ReplyHead good = decode_reply(encode(ReplyHead{nullptr, PushResult::Dropped, "late", 9, true}));
  EXPECT_EQ(good.error, nullptr);
  EXPECT_EQ(good.result, PushResult::Dropped);
  EXPECT_EQ(good.reason, "late");
  EXPECT_EQ(good.version, 9U);
  EXPECT_TRUE(good.stop);
  EXPECT_FALSE(good.finish);
  EXPECT_TRUE(decode_reply(encode(ReplyHead{nullptr, {}, {}, 0, false, true})).finish);
  const ReplyHead bad =
      decode_reply(encode(ReplyHead{make_error(ErrorCode::Unavailable, "gone"), {}, {}, 0}));
  ASSERT_NE(bad.error, nullptr);
  EXPECT_EQ(bad.error->code, ErrorCode::Unavailable);
  EXPECT_EQ(bad.error->message, "gone");
}

TEST(PsWireTest, EveryCutAndEveryExtraByteIsDamage) {
  const Meta whole = encode(PushHead{kSender, 1, 0, 0, {}, {{0, 1, 10}}, {{0, 4, 2}}});
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_THROW(decode_push(std::span(whole).first(size)), DataLoss) << size;
  Meta longer = whole;
  longer.push_back(std::byte{0});
  EXPECT_THROW(decode_push(longer), DataLoss);
}

TEST(PsWireTest, AbsurdCountsAreDamage) {
  EXPECT_THROW(decode_push(encode(PushHead{kSender, 1, 0, 0, {}, {{0, 1, std::uint64_t{1} << 62}}, {}})),
               DataLoss);
  EXPECT_THROW(decode_push(encode(PushHead{kSender, 1, 0, 0, {}, {}, {{0, 0, 1}}})), DataLoss);
}

TEST(PsWireTest, PartsOfAPushLieOneAfterAnother) {
  const PushHead head{kSender, 1, 0, 0, {}, {{0, 1, 3}}, {{0, 2, 2}, {1, 1, 1}}};
  std::vector<std::byte> payload(key_bytes(head.sparse) + value_bytes(head.dense) + value_bytes(head.sparse));
  std::vector<DensePart> dense;
  std::vector<SparsePart> sparse;
  locate(head, payload.data(), dense, sparse);
  auto offset = [&](const void* p) { return static_cast<const std::byte*>(p) - payload.data(); };
  EXPECT_EQ(offset(sparse[0].keys.data()), 0);
  EXPECT_EQ(offset(sparse[1].keys.data()), 16);
  EXPECT_EQ(offset(dense[0].values.data()), 24);
  EXPECT_EQ(offset(sparse[0].rows), 36);
  EXPECT_EQ(offset(sparse[1].rows), 52);
}

}  // namespace
}  // namespace braid::ps
