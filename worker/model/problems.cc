#include "worker/model/problems.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace braid::worker {

void Problems::refuse() const {
  if (none()) return;
  std::vector<std::string> once;  // the graphs of training and of inference may have the same ones
  for (const std::string& problem : texts_)
    if (std::find(once.begin(), once.end(), problem) == once.end()) once.push_back(problem);
  std::string text = fmt::format("{}: {} thing{} keep{} it from training:", source_, once.size(),
                                 once.size() == 1 ? "" : "s", once.size() == 1 ? "s" : "");
  for (const std::string& problem : once) text += "\n  " + problem;
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
