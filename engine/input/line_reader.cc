#include "engine/input/line_reader.h"

#include "base/error.h"
#include "base/log.h"

namespace braid {

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
