#include "engine/input/line_reader.h"

#include "base/error.h"
#include "base/log.h"

namespace braid {

void split_fields(std::string_view line, char separator, std::vector<std::string_view>& fields,
                  std::string& unquoted) {
  fields.clear();
  unquoted.clear();
  unquoted.reserve(line.size());  // views into it stay valid
  std::size_t at = 0;
  for (;;) {
    while (at < line.size() && line[at] == ' ') ++at;
    if (at < line.size() && line[at] == '"') {
      const std::size_t begin = unquoted.size();
      for (++at; at < line.size(); ++at) {
        if (line[at] != '"') {
          unquoted.push_back(line[at]);
        } else if (at + 1 < line.size() && line[at + 1] == '"') {
          unquoted.push_back(line[++at]);
        } else {
          ++at;
          break;
        }
      }
      fields.emplace_back(unquoted.data() + begin, unquoted.size() - begin);
      at = std::min(line.find(separator, at), line.size());
    } else {
      const std::size_t end = std::min(line.find(separator, at), line.size());
      std::string_view field = line.substr(at, end - at);
      while (!field.empty() && field.back() == ' ') field.remove_suffix(1);
      fields.push_back(field);
      at = end;
    }
    if (at >= line.size()) return;
    ++at;  // the separator; a trailing one is followed by an empty field
  }
}

void BadRecords::add(const std::filesystem::path& file, std::int64_t line, const std::string& what) {
  add("'" + file.string() + "' line " + std::to_string(line) + ": " + what);
}

void BadRecords::add(const std::string& text) {
  if (++count_ > limit_)
    throw DataLoss(text + (limit_ > 0 ? " (bad record " + std::to_string(count_) + ", at most " +
                                            std::to_string(limit_) + " are skipped)"
                                      : ""));
  constexpr std::int64_t kLogged = 5;
  if (count_ <= kLogged) log_warning("skipped: {}", text);
}

}  // namespace braid
