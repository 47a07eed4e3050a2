#include "engine/ops/common/two_parts.h"

#include <map>
#include <utility>

namespace braid {
namespace {

std::map<std::string, TwoParts, std::less<>>& all_parts() {
  static auto* parts = new std::map<std::string, TwoParts, std::less<>>;  // as the registry of ops
  return *parts;
}

}  // namespace

void set_two_parts(std::string_view op, TwoParts parts) {
  all_parts().insert_or_assign(std::string(op), std::move(parts));
}

const TwoParts* two_parts(const OpDef& op) {
  const auto found = all_parts().find(op.name);
  return found == all_parts().end() ? nullptr : &found->second;
}

}  // namespace braid
