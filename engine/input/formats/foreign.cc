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
constexpr std::array kKinds{
    Kind{"BZh", "the file is packed by bzip2: unpack it (gzip, zstd and lz4 are read)"},
    Kind{"\xFD"
         "7zXZ",
         "the file is packed by xz: unpack it (gzip, zstd and lz4 are read)"},
    Kind{"PK\x03\x04",
         "the file is a zip archive, as .xlsx files are, too: unpack it, or save the table as CSV"},
    Kind{"7z\xBC\xAF", "the file is a 7z archive: unpack it"},
    Kind{"Rar!", "the file is a RAR archive: unpack it"},
    Kind{"PAR1", "the file is Parquet: input.format: PARQUET"},
    Kind{"ARROW1", "the file is Arrow's (Feather): write it as Parquet"},
    Kind{"ORC", "the file is ORC: write it as Parquet"},
    Kind{"Obj\x01", "the file is Avro: write it as Parquet"},
    Kind{"\x89HDF", "the file is HDF5: write it as CSV, Parquet or NPY"},
    Kind{"\x93NUMPY", "the file is an array of NumPy: input.format: NPY"},
    Kind{"SQLite format 3", "the file is a database of SQLite: write its table as CSV"},
    Kind{"%PDF", "the file is a PDF"},
    Kind{"\x89PNG", "the file is an image"},
    Kind{kGit, "the file is Git LFS's pointer to the data: git lfs pull fetches them"},
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

/// "6,72" -> "6.72", "1.234,5" and "1,234.5" -> "1234.5"; empty where it is none of these.
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
  return fmt::format("{}{}.{}", minus ? "-" : "", whole, number.substr(last + 1));
}

}  // namespace

std::string foreign_kind(std::string_view head) {
  for (const Kind& kind : kKinds)
    if (head.starts_with(kind.begin)) return std::string(kind.what);
  if (is_utf16(head)) return "the file is UTF-16: iconv -f UTF-16 -t UTF-8 makes UTF-8 of it";
  const auto first = head.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  const std::string_view text = head.substr(first);
  if (begins_as(text, "<!doctype") || begins_as(text, "<html") || begins_as(text, "<?xml"))
    return "the file is a web page, or XML: perhaps what a server answered in place of the data";
  if (text.starts_with("{\"") || text.starts_with("[{"))
    return "the file is JSON: write it as CSV or Parquet";
  if (std::ranges::count(head, '\r') > 1 && head.find('\n') == std::string_view::npos)
    return "its lines end with carriage returns alone: tr '\\r' '\\n' makes lines of them";
  return {};
}

std::string other_separator(std::string_view head, std::string_view comment, char separator,
                            std::size_t fields) {
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
