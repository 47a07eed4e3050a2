#include "base/control_group.h"

#include <algorithm>
#include <fstream>
#include <iterator>

namespace braid {
namespace {

void add_with_parents(const std::filesystem::path& root, std::filesystem::path path, int version,
                      std::vector<ControlGroup>& found) {
  for (path = path.relative_path(); !path.empty(); path = path.parent_path())
    found.push_back({root / path, version});
}

}  // namespace

std::string own_control_groups() {
  std::ifstream in("/proc/self/cgroup");
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<ControlGroup> control_groups(std::string_view groups, const std::filesystem::path& root,
                                         std::string_view controller) {
  const std::string named = "," + std::string(controller) + ",";
  std::vector<ControlGroup> found{{root, 2}, {root / controller, 1}};
  while (!groups.empty()) {
    const std::string_view line = groups.substr(0, groups.find('\n'));
    groups.remove_prefix(std::min(groups.size(), line.size() + 1));
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    const std::string controllers = "," + std::string(line.substr(first + 1, second - first - 1)) + ",";
    if (controllers == ",,")
      add_with_parents(root, line.substr(second + 1), 2, found);
    else if (controllers.find(named) != std::string::npos)
      add_with_parents(root / controller, line.substr(second + 1), 1, found);
  }
  return found;
}

}  // namespace braid
