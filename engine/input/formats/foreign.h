// What a file is that was to hold lines of text and does not: for errors that say what to do. Private to
// engine/input. Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace braid {

/// "text in UTF-16: write it in UTF-8, as iconv -f UTF-16 -t UTF-8 does", from a file's first bytes,
/// unpacked; empty where they are of no known kind. Some kinds begin with letters alone ("ORC"), as text may.
std::string_view foreign_format(std::string_view head);

/// The same as a clause, "the file is text in UTF-16: ...", and of lines that end in an unusual way.
std::string foreign_kind(std::string_view head);

/// Of a CSV whose records have not `fields` fields between `separator`s: the separator that cuts them so, as
/// "its lines have 3 fields between ';': input.csv.separator: \";\""; empty where there is none.
std::string other_separator(std::string_view head, std::string_view comment, char separator,
                            std::size_t fields);

/// "'6,72' is not a number", with what to write in its place where that is known. `may_be_missing`: numbers
/// of its column.
std::string not_a_number(std::string_view text, bool may_be_missing = true);

}  // namespace braid
