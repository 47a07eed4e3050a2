#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/init.h"

namespace braid {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::vector<std::byte> random_bytes(std::size_t count) {
  std::vector<std::uint32_t> words(count / 4 + 1);
  fill_bits(make_rng_key(5, "bytes"), 0, words);
  const auto raw = std::as_bytes(std::span(words)).first(count);
  return {raw.begin(), raw.end()};
}

// RFC 3720, appendix B.4, and the check value of the CRC catalogues ("123456789").
TEST(Crc32cTest, KnownAnswers) {
  for (auto crc : {crc32c, crc32c_portable}) {
    EXPECT_EQ(crc(bytes_of(""), 0), 0U);
    EXPECT_EQ(crc(bytes_of("123456789"), 0), 0xE3069283U);
    EXPECT_EQ(crc(bytes_of(std::string(32, '\0')), 0), 0x8A9136AAU);
    EXPECT_EQ(crc(bytes_of(std::string(32, '\xFF')), 0), 0x62A8AB43U);
    std::string rising, falling;
    for (char c = 0; c < 32; ++c) {
      rising.push_back(c);
      falling.insert(falling.begin(), c);
    }
    EXPECT_EQ(crc(bytes_of(rising), 0), 0x46DD794EU);
    EXPECT_EQ(crc(bytes_of(falling), 0), 0x113FDB5CU);
  }
}

TEST(Crc32cTest, TablesAndInstructionsAgreeForAllLengthsAndAlignments) {
  const auto data = random_bytes(40'000);
  const std::span all(data);
  for (std::size_t length = 0; length < 2000; length += length < 100 ? 1 : 37)
    for (std::size_t offset = 0; offset < 9; ++offset)
      ASSERT_EQ(crc32c(all.subspan(offset, length), 77), crc32c_portable(all.subspan(offset, length), 77))
          << length;
  for (std::size_t length : {12'287, 12'288, 12'289, 24'576, 39'999, 40'000})
    ASSERT_EQ(crc32c(all.first(length)), crc32c_portable(all.first(length))) << length;
}

TEST(Crc32cTest, ContinuesFromASeed) {
  const auto data = random_bytes(30'000);
  const std::span all(data);
  const std::uint32_t whole = crc32c(all);
  for (std::size_t cut : {0, 1, 7, 8, 768, 12'288, 29'999, 30'000})
    EXPECT_EQ(crc32c(all.subspan(cut), crc32c(all.first(cut))), whole) << "cut at " << cut;
}

TEST(Crc32cTest, SeesEachFlippedBit) {
  auto data = random_bytes(200);
  const std::uint32_t before = crc32c(data);
  for (std::size_t bit = 0; bit < data.size() * 8; ++bit) {
    data[bit / 8] ^= std::byte{1} << (bit % 8);
    ASSERT_NE(crc32c(data), before) << "bit " << bit;
    data[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

TEST(Crc32cTest, MaskIsUndoneByUnmask) {
  static_assert(crc32c_mask(0) == 0xA282EAD8U);
  for (std::uint32_t crc : {0U, 1U, 0xE3069283U, 0xFFFFFFFFU})
    EXPECT_EQ(crc32c_unmask(crc32c_mask(crc)), crc);
}

}  // namespace
}  // namespace braid
