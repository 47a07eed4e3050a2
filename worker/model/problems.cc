#include "worker/model/problems.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace braid::worker {

void Problems::refuse() const {
  if (none()) return;
  std::string text = fmt::format("{}: {} thing{} keep{} it from training:", source_, texts_.size(),
                                 texts_.size() == 1 ? "" : "s", texts_.size() == 1 ? "s" : "");
  for (const std::string& problem : texts_) text += "\n  " + problem;
  throw InvalidArgument(std::move(text));
}

std::string quoted_list(const std::vector<std::string>& names, std::size_t most) {
  std::string text;
  for (std::size_t i = 0; i < std::min(most, names.size()); ++i)
    text += (i > 0 ? ", '" : "'") + names[i] + "'";
  if (names.size() > most) text += fmt::format(" and {} more", names.size() - most);
  return text;
}

}  // namespace braid::worker
