// Strings to numbers: TensorFlow's buckets, published hash values, what is refused.
#include <gtest/gtest.h>

#include "engine/ops/common/string_hash.h"
#include "tests/engine/ops/op_runner.h"

namespace braid::testing {
namespace {

using Doubles = std::vector<double>;

// The values that TensorFlow's own tests of these ops state.
TEST(StringHashTest, GivesTensorFlowsBuckets) {
  EXPECT_EQ(farm_fingerprint64("a"), 12917804110809363939U);
  EXPECT_EQ(farm_fingerprint64("b"), 11795596070477164822U);
  EXPECT_EQ(murmur_hash64("a"), 2996632905371535868U);
  EXPECT_EQ(murmur_hash64("b"), 5795986006276551370U);
  EXPECT_EQ(sip_hash64("a", 98765, 132), 7157389809176466784U);
  EXPECT_EQ(sip_hash64("b", 98765, 132), 15805638358933211562U);
  const Tensor x = text({"a", "b", "c", "d"});
  EXPECT_EQ(values("StringToHashBucketFast", {x}, {{"num_buckets", 10}}), (Doubles{9, 2, 2, 5}));
  EXPECT_EQ(values("StringToHashBucket", {text({"a", "b", "c"})}, {{"num_buckets", 10}}), (Doubles{8, 0, 7}));
  const std::vector<std::int64_t> key{98765, 132};
  EXPECT_EQ(values("StringToHashBucketStrong", {text({"a", "b", "c"})}, {{"num_buckets", 10}, {"key", key}}),
            (Doubles{4, 2, 8}));
}

TEST(StringHashTest, OfNoBucketsTheHashIsWhole) {
  const Tensor whole = run_op("StringToHashBucketFast", {text({"a", "b"})}, {{"num_buckets", 0}})[0];
  EXPECT_EQ(static_cast<std::uint64_t>(whole.data<std::int64_t>()[0]), farm_fingerprint64("a"));
  EXPECT_EQ(static_cast<std::uint64_t>(whole.data<std::int64_t>()[1]), farm_fingerprint64("b"));
}

TEST(StringHashTest, IntegersHashAsTheirDigits) {
  for (const char* op : {"StringToHashBucketFast", "StringToHashBucket"})
    EXPECT_EQ(values(op, {Tensor::from<std::int64_t>({3}, std::vector<std::int64_t>{7, -12, 1234567890123})},
                     {{"num_buckets", 1000}}),
              values(op, {text({"7", "-12", "1234567890123"})}, {{"num_buckets", 1000}}));
}

// Appendix A of the paper on SipHash: key 00 01 ... 0f, text 00 01 ... 0e.
TEST(StringHashTest, SipHashOfThePaper) {
  std::string message;
  for (char c = 0; c < 15; ++c) message += c;
  EXPECT_EQ(sip_hash64(message, 0x0706050403020100, 0x0f0e0d0c0b0a0908), 0xa129ca6149be45e5U);
}

TEST(StringHashTest, EveryLengthReadsItsOwnBytesOnly) {
  // A change of any byte changes the hash, and what lies behind the text does not.
  std::string bytes(200, 'x');
  for (std::size_t n : {0, 1, 3, 4, 7, 8, 16, 17, 32, 33, 64, 65, 127, 128, 129, 200}) {
    const std::string alone(bytes.data(), n);
    EXPECT_EQ(farm_fingerprint64(alone), farm_fingerprint64(std::string_view(bytes).substr(0, n)));
    for (std::size_t i = 0; i < n; ++i) {
      std::string changed = alone;
      changed[i] = 'y';
      EXPECT_NE(farm_fingerprint64(changed), farm_fingerprint64(alone)) << n << " bytes, byte " << i;
    }
  }
}

TEST(StringToNumberTest, ParsesAndRefuses) {
  const AttrMap integers{{"out_type", DType::Int64}};
  EXPECT_EQ(values("StringToNumber", {text({"1.5", " -2e3\n", "+.5"})}), (Doubles{1.5, -2000, 0.5}));
  EXPECT_EQ(values("StringToNumber", {text({"9007199254740993"})}, integers), (Doubles{9007199254740992}));
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(values("StringToNumber", {text({"0x1.8", "-0X10", "1e400", "-1e400", "1e-400"})}),
            (Doubles{1.5, -16, inf, -inf, 0}));
  EXPECT_EQ(refusal("StringToNumber", {text({"--1"})}),
            "[StringToNumber] node 'op': element 0, '--1', is no float32");
  EXPECT_EQ(refusal("StringToNumber", {text({"1", "two"})}),
            "[StringToNumber] node 'op': element 1, 'two', is no float32");
  EXPECT_EQ(refusal("StringToNumber", {text({"1.5"})}, integers),
            "[StringToNumber] node 'op': element 0, '1.5', is no int64");
}

TEST(DecodeRawTest, BytesAsNumbers) {
  EXPECT_EQ(values("DecodeRaw", {text({"ab", "c0"})}, {{"out_type", DType::UInt8}}),
            (Doubles{97, 98, 99, 48}));
  EXPECT_EQ(values("DecodeRaw", {text({"ab"})}, {{"out_type", DType::Int16}}), (Doubles{97 + 256 * 98}));
  EXPECT_EQ(values("DecodeRaw", {text({"ab", "cd"})}, {{"out_type", DType::Int16}, {"little_endian", false}}),
            (Doubles{256 * 97 + 98, 256 * 99 + 100}));
  EXPECT_EQ(refusal("DecodeRaw", {text({"ab", "c"})}, {{"out_type", DType::UInt8}}),
            "[DecodeRaw] node 'op': strings must have one length, element 1 has 1 bytes, those before 2");
  EXPECT_EQ(refusal("DecodeRaw", {text({"abc"})}, {{"out_type", DType::Int16}}),
            "[DecodeRaw] node 'op': 3 bytes are no multiple of the 2 of int16");
}

}  // namespace
}  // namespace braid::testing
