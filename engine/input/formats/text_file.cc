#include <algorithm>
#include <limits>

#include "engine/input/files/byte_source.h"
#include "engine/input/formats/field_reader.h"
#include "engine/input/formats/line_reader.h"
#include "engine/input/formats/readers.h"

namespace braid {

std::string read_text_file(const std::filesystem::path& file) {
  const std::unique_ptr<ByteSource> source = open_bytes(file);
  constexpr std::uint64_t kChunk = std::uint64_t{1} << 20;
  std::string text;
  for (;;) {
    // One byte more than a plain file has, so that its end is seen without another round.
    const std::uint64_t left = source->bytes_left_at_most();
    const bool is_known = left != std::numeric_limits<std::uint64_t>::max();
    const std::uint64_t step = is_known ? left + 1 : std::max(kChunk, text.size() / 2);
    const std::size_t used = text.size();
    text.resize(used + step);
    const std::size_t got = source->read(std::span(text).subspan(used));
    text.resize(used + got);
    if (got < step) return text;
  }
}

std::vector<std::string> read_words(const std::filesystem::path& file) {
  std::vector<std::string> words;
  const std::string text = read_text_file(file);
  for_each_line(without_byte_order_mark(text), [&](std::string_view line, std::int64_t) {
    if (!line.empty()) words.emplace_back(line);
  });
  return words;
}

}  // namespace braid
