// Records of delimited text with every awkward quote and line end.
#include "engine/input/formats/field_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/input/files/byte_source.h"

namespace braid {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Record {
  std::int64_t line;
  std::vector<std::string> fields;
  bool operator==(const Record&) const = default;
};
void PrintTo(const Record& record, std::ostream* out) {
  *out << "line " << record.line << " " << testing::PrintToString(record.fields);
}

/// Good records; of the others the problem alone.
std::vector<Record> records_of(const std::string& text, char separator = ',',
                               const std::string& comment = {}) {
  std::vector<Record> records;
  for (FieldReader reader(text, separator, comment); reader.next();)
    if (reader.problem().empty())
      records.push_back({reader.line(), {reader.fields().begin(), reader.fields().end()}});
    else
      records.push_back({reader.line(), {reader.problem()}});
  return records;
}

TEST(FieldReaderTest, LineEndsOfEveryKindAndTheMissingLastOne) {
  const std::vector<Record> expected{{1, {"a", "b"}}, {2, {"c", "d"}}};
  EXPECT_EQ(records_of("a,b\nc,d\n"), expected);
  EXPECT_EQ(records_of("a,b\r\nc,d\r\n"), expected);
  EXPECT_EQ(records_of("a,b\nc,d"), expected);
  EXPECT_EQ(records_of("\xEF\xBB\xBF\"a\",b\nc,\"d\""), expected)
      << "behind a byte order mark, quoted at the end";
  EXPECT_THAT(records_of(""), ElementsAre());
  EXPECT_THAT(records_of("\n\r\n\n"), ElementsAre()) << "empty lines are no records";
}

TEST(FieldReaderTest, EmptyFieldsAndBlanksAroundFields) {
  EXPECT_THAT(records_of(",a,,b,\n , \n"),
              ElementsAre(Record{1, {"", "a", "", "b", ""}}, Record{2, {"", ""}}));
  EXPECT_THAT(records_of(" a , \" b \" ,c"), ElementsAre(Record{1, {"a", " b ", "c"}}));
  EXPECT_THAT(records_of("a  b", ' '), ElementsAre(Record{1, {"a", "", "b"}})) << "a blank that separates";
  EXPECT_THAT(records_of("\t\"a\tb\"\t", '\t'), ElementsAre(Record{1, {"", "a\tb", ""}}));
}

TEST(FieldReaderTest, QuotesHoldSeparatorsLineEndsAndDoubledQuotes) {
  EXPECT_THAT(records_of("\"a,b\",\"say \"\"hi\"\"\",\"\",\"\"\"\"\nx,y\n"),
              ElementsAre(Record{1, {"a,b", "say \"hi\"", "", "\""}}, Record{2, {"x", "y"}}));
  EXPECT_THAT(records_of("1,\"two\nlines\"\n2,\"and\r\n\r\n\"\"three\"\"\"\r\n3,z"),
              ElementsAre(Record{1, {"1", "two\nlines"}}, Record{3, {"2", "and\r\n\r\n\"three\""}},
                          Record{6, {"3", "z"}}));
  EXPECT_THAT(records_of("5\" pipe,a\"b\"\n"), ElementsAre(Record{1, {"5\" pipe", "a\"b\""}}))
      << "a quote inside of a field is a character";
}

TEST(FieldReaderTest, AWrongQuoteCostsOneLine) {
  EXPECT_THAT(records_of("1,a\n2,\"b\n3,c\n4,d"),
              ElementsAre(Record{1, {"1", "a"}}, Record{2, {"the quote of field 2 is not closed"}},
                          Record{3, {"3", "c"}}, Record{4, {"4", "d"}}));
  EXPECT_THAT(records_of("\"a\"b,c\nd,e"),
              ElementsAre(Record{1, {"field 1 goes on behind its closing quote"}}, Record{2, {"d", "e"}}));
  EXPECT_THAT(records_of("a,\"b\nc\"d\ne,f"),
              ElementsAre(Record{1, {"field 2 goes on behind its closing quote"}}, Record{2, {"c\"d"}},
                          Record{3, {"e", "f"}}));
}

/// A text as a file.
class TextSource : public ByteSource {
 public:
  explicit TextSource(std::string text) : text_(std::move(text)) {}
  std::size_t read(std::span<char> out) override {
    const std::size_t count = std::min(out.size(), text_.size() - at_);
    std::copy_n(text_.data() + at_, count, out.data());
    at_ += count;
    return count;
  }
  Compression compression() const override { return Compression::None; }
  std::uint64_t bytes_left_at_most() const override { return text_.size() - at_; }

 private:
  std::string text_;
  std::size_t at_ = 0;
};

TEST(FieldReaderTest, AFileOfAnyLengthReadsAsItsWholeText) {
  std::mt19937 random(9);
  const std::string pieces[] = {"a", "bcd", ",",    "\n", "\r\n", "\"x\"", "\"y,\n\"\"z\"",
                                ",", "\n",  "#c\n", " "};
  std::string text = "\xEF\xBB\xBF";
  while (text.size() < 1'500'000) text += pieces[random() % std::size(pieces)];
  text += "1,\"" + std::string(300'000, 'q') + "\",2\nlast,\"never closed\nend";
  const std::vector<Record> expected = records_of(text, ',', "#");
  ASSERT_GT(expected.size(), 100'000U);
  std::size_t at = 0;
  for (FieldReader reader(std::make_unique<TextSource>(text), ',', "#"); reader.next(); ++at) {
    ASSERT_LT(at, expected.size());
    Record record{reader.line(), {reader.fields().begin(), reader.fields().end()}};
    if (!reader.problem().empty()) record.fields = {reader.problem()};
    ASSERT_EQ(record, expected[at]) << at;
  }
  EXPECT_EQ(at, expected.size());
  FieldReader none(std::make_unique<TextSource>(""), ',');
  EXPECT_FALSE(none.next());
}

TEST(FieldReaderTest, CommentsAreLinesOutsideOfQuotes) {
  EXPECT_THAT(records_of("#x\n1,\"a\n#b\"\n#y\n2,c", ',', "#"),
              ElementsAre(Record{2, {"1", "a\n#b"}}, Record{5, {"2", "c"}}));
}

}  // namespace
}  // namespace braid
