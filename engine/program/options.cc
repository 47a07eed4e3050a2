#include "engine/program/options.h"

#include <array>
#include <utility>

namespace braid {
namespace {

constexpr std::array<std::pair<StreamPolicy, std::string_view>, 6> kPolicies = {{
    {StreamPolicy::None, "NONE"},
    {StreamPolicy::User, "USER"},
    {StreamPolicy::Embedding, "EMBEDDING"},
    {StreamPolicy::Full, "FULL"},
    {StreamPolicy::Cost, "COST"},
    {StreamPolicy::Auto, "AUTO"},
}};

}  // namespace

std::optional<StreamPolicy> stream_policy_from_name(std::string_view name) {
  for (const auto& [policy, text] : kPolicies)
    if (text == name) return policy;
  return std::nullopt;
}

std::vector<std::string> stream_policy_names() {
  std::vector<std::string> names;
  for (const auto& [policy, text] : kPolicies) names.emplace_back(text);
  return names;
}

std::string_view stream_policy_name(StreamPolicy policy) {
  for (const auto& [known, text] : kPolicies)
    if (known == policy) return text;
  return "?";
}

}  // namespace braid
