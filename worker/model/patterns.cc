#include "worker/model/patterns.h"

#include <re2/re2.h>

#include "base/error.h"

namespace braid::worker {

NamePattern::NamePattern(const std::string& field, const std::string& text) {
  if (text.empty()) return;
  pattern_ = std::make_unique<re2::RE2>(text, re2::RE2::Quiet);
  if (!pattern_->ok())
    throw InvalidArgument("model.graph." + field + " '" + text +
                          "' is no regular expression: " + pattern_->error());
}

NamePattern::~NamePattern() = default;

bool NamePattern::matches(const std::string& name) const { return re2::RE2::FullMatch(name, *pattern_); }

}  // namespace braid::worker
