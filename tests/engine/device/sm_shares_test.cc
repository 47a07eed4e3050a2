// Shares of multiprocessors: what is written, what a device gives of it, and which stream has which.
#include "engine/device/sm_shares.h"

#include <gmock/gmock.h>

#include <functional>

#include "base/error.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<SmShare> parsed(const std::vector<std::string>& entries) { return parse_sm_shares(entries); }

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.message();
  }
  return "nothing was refused";
}

/// 132 multiprocessors in units of 8, as a GPU gives them.
constexpr SmUnits kUnits{16, 8, 4};

TEST(SmSharesTest, NumbersPartsAndTheRestAreRoundedUpToUnits) {
  EXPECT_THAT(share_out(parsed({"32:a", "25%:b", "rest:c"}), kUnits), ElementsAre(4, 5, 7));
  EXPECT_THAT(share_out(parsed({"1:a", "9:b"}), kUnits), ElementsAre(1, 2));
  EXPECT_THAT(share_out(parsed({"rest:a", "100:b"}), kUnits), ElementsAre(3, 13)) << "in their order";
  EXPECT_THAT(share_out(parsed({"128:a", "rest:b"}), kUnits), ElementsAre(16, 0))
      << "the rest has those beyond the last unit";
  EXPECT_THAT(share_out({}, kUnits), ElementsAre());
}

TEST(SmSharesTest, MoreThanTheDeviceHasIsRefused) {
  EXPECT_THAT(
      refusal([] {
        share_out(parsed({"100:a", "40:b"}), kUnits);
      }),
      HasSubstr("streams.partition '40:b': of the device's 132 multiprocessors 24 are left, in shares "
                "of 8 each"));
  EXPECT_THAT(refusal([] { share_out(parsed({"133:a"}), kUnits); }), HasSubstr("128 are left"));
  EXPECT_THAT(refusal([] {
                share_out(parsed({"8:a", "rest:b"}), {1, 8, 0});
              }),
              HasSubstr("the others leave none of the 8"));
}

TEST(SmSharesTest, WhatIsNoEntryIsRefused) {
  EXPECT_THAT(refusal([] { parsed({"32"}); }), HasSubstr("streams.partition '32': there is no ':'"));
  for (const char* amount : {"", "0", "-8", "8x", "%", "0%", "all", "2000000000000"})
    EXPECT_THAT(refusal([&] { parsed({std::string(amount) + ":a"}); }),
                HasSubstr("is no number of multiprocessors"))
        << amount;
  EXPECT_THAT(refusal([] { parsed({"8:a("}); }), HasSubstr("streams.partition '8:a(': missing )"));
  EXPECT_THAT(refusal([] { parsed({"60%:a", "41%:b"}); }), HasSubstr("more than 100 %"));
  EXPECT_THAT(refusal([] { parsed({"rest:a", "rest:b"}); }), HasSubstr("another entry has the rest already"));
}

TEST(SmSharesTest, TheFirstPatternThatFitsAllOfANameCounts) {
  const auto shares = parsed({"8:group0/.*", "8:", "8:compute[01]", "rest:.*"});
  const SmShareNames names(shares);
  EXPECT_EQ(names.share_of("group0/compute0"), 0);
  EXPECT_EQ(names.share_of("compute1"), 2);
  EXPECT_EQ(names.share_of("compute10"), 3);
  EXPECT_EQ(SmShareNames(parsed({"8:compute"})).share_of("compute0"), -1);
  const std::vector<std::string> streams{"launch", "compute0", "comm"};
  EXPECT_EQ(shares_text(shares, streams),
            "multiprocessors: 8: no stream of this step fits 'group0/.*'\n"
            "multiprocessors: 8: set aside\n"
            "multiprocessors: 8: compute0\n"
            "multiprocessors: the rest: launch comm\n");
  EXPECT_EQ(shares_text({}, streams), "");
}

}  // namespace
}  // namespace braid
