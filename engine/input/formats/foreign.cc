#include "engine/input/formats/foreign.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "engine/input/formats/sniff.h"

namespace braid {
namespace {

struct Kind {
  std::string_view begin;
  std::string_view what;
};

constexpr std::string_view kGit = "version https://git-lfs.github.com/spec/";
constexpr std::size_t kWord = 3;  // so short a beginning a text may have, too: a column "ORC"
constexpr std::string_view kUtf16 = "text in UTF-16: write it in UTF-8, as iconv -f UTF-16 -t UTF-8 does";
constexpr std::array kKinds{
    Kind{"BZh", "packed by bzip2: unpack it (gzip, zstd and lz4 are read)"},
    Kind{"\xFD"
         "7zXZ",
         "packed by xz: unpack it (gzip, zstd and lz4 are read)"},
    Kind{"PK\x03\x04",
         "a ZIP archive (.zip, .npz, .xlsx): unpack it, save the table as CSV, or write its arrays as .npy"},
    Kind{"7z\xBC\xAF", "a 7z archive: unpack it"},
    Kind{"Rar!", "a RAR archive: unpack it"},
    Kind{"PAR1", "Parquet: input.format: PARQUET"},
    Kind{"ARROW1", "an Arrow file (Feather): write it as Parquet, with pyarrow.parquet.write_table"},
    Kind{"ORC",
         "an ORC file: write it as Parquet, with pyarrow.orc.read_table and pyarrow.parquet.write_table"},
    Kind{"Obj\x01", "an Avro file: write it as Parquet"},
    Kind{"\x89HDF", "an HDF5 file: write its arrays as .npy, or its rows as Parquet"},
    Kind{"\x93NUMPY", "an array of NumPy: input.format: NPY"},
    Kind{"SQLite format 3", "a SQLite database: write its rows as CSV or Parquet"},
    Kind{"%PDF", "a PDF"},
    Kind{"\x89PNG", "an image"},
    Kind{kGit, "Git LFS's pointer to the data: git lfs pull fetches them"},
};

bool begins_as(std::string_view text, std::string_view lower) {
  return text.size() >= lower.size() &&
         std::equal(lower.begin(), lower.end(), text.begin(),
                    [](char a, char b) { return a == std::tolower(static_cast<unsigned char>(b)); });
}

/// Text of which every other byte is zero.
bool is_utf16(std::string_view head) {
  if (head.starts_with("\xFF\xFE") || head.starts_with("\xFE\xFF")) return true;
  head = head.substr(0, 256 & ~std::size_t{1});
  std::size_t even = 0, odd = 0;
  for (std::size_t i = 0; i < head.size(); ++i) (i % 2 == 0 ? even : odd) += head[i] == '\0' ? 1 : 0;
  return head.size() >= 16 && std::max(even, odd) * 4 > head.size() && std::min(even, odd) == 0;
}

bool digits(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
}

/// "6,72" -> "6.72", "1.234,5" and "1,234.5" -> "1234.5", "1,234" -> "1.234 or 1234"; empty where it is none
/// of these.
std::string with_point(std::string_view text) {
  const bool minus = text.starts_with('-');
  const std::string_view number = text.substr(minus ? 1 : 0);
  const auto last = number.find_last_of(",.");
  if (last == std::string_view::npos || !digits(number.substr(last + 1))) return {};
  std::string whole;
  char group = 0;
  for (const char c : number.substr(0, last)) {
    if (std::isdigit(static_cast<unsigned char>(c)) != 0)
      whole += c;
    else if ((c == ',' || c == '.' || c == ' ' || c == '\'') && (group == 0 || group == c))
      group = c;
    else
      return {};
  }
  if (whole.empty() || group == number[last]) return {};
  const std::string_view sign = minus ? "-" : "", rest = number.substr(last + 1);
  std::string text_with_point = fmt::format("{}{}.{}", sign, whole, rest);
  if (group == 0 && number[last] == ',' && whole.size() <= 3 && rest.size() == 3)  // of thousands, perhaps
    text_with_point += fmt::format(" or {}{}{}", sign, whole, rest);
  return text_with_point;
}

}  // namespace

std::string_view foreign_format(std::string_view head) {
  const bool has_zero = head.find('\0') != std::string_view::npos;
  for (const Kind& kind : kKinds)
    if (head.starts_with(kind.begin) && (has_zero || kind.begin.size() > kWord)) return kind.what;
  if (is_utf16(head)) return kUtf16;
  const auto first = head.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  const std::string_view text = head.substr(first);
  if (begins_as(text, "<!doctype") || begins_as(text, "<html") || begins_as(text, "<?xml"))
    return "a web page, or XML: perhaps what a server answered in place of the data";
  if (text.starts_with("{\"") || text.starts_with("[{")) return "JSON: write it as CSV or Parquet";
  return {};
}

std::string foreign_kind(std::string_view head) {
  if (const std::string_view what = foreign_format(head); !what.empty())
    return "the file is " + std::string(what);
  if (std::ranges::count(head, '\r') > 1 && head.find('\n') == std::string_view::npos)
    return "its lines end with carriage returns alone: tr '\\r' '\\n' makes lines of them";
  return {};
}

std::string other_separator(std::string_view head, std::string_view comment, char separator,
                            std::size_t fields) {
  if (text_shape(head, comment, separator).fields == fields) return {};  // but for some of its lines
  for (const char other : std::string_view(",;\t|"))
    if (other != separator && fields > 1 && text_shape(head, comment, other).fields == fields)
      return fmt::format("its lines have {} fields between {}: input.csv.separator: \"{}\"", fields,
                         other == '\t' ? "tabs" : fmt::format("'{}'", other),
                         other == '\t' ? "\\t" : std::string(1, other));
  return {};
}

std::string not_a_number(std::string_view text, bool may_be_missing) {
  std::string problem = fmt::format("'{}' is not a number", text);
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (const std::string better = with_point(text); !better.empty())
    return problem + fmt::format(" here: write {}, with a point and without separators of thousands", better);
  for (const char* const none : {"nan", "na", "n/a", "null", "none", "-", "nil", "\\n"})
    if (may_be_missing && lower == none)
      return problem + "; a number that is missing is an empty field or '?'";
  for (const char* const word : {"true", "false", "yes", "no", "y", "n", "t", "f"})
    if (lower == word)
      return problem + "; a LABEL with `positive: \"" + std::string(text) +
             "\"` is 1 for this text and 0 for others";
  return problem;
}

}  // namespace braid
