// The patterns of names in model.graph. Thread rule: values.
#pragma once

#include <memory>
#include <string>

namespace re2 {
class RE2;
}

namespace braid::worker {

/// Matches whole names.
class NamePattern {
 public:
  /// `field` stands in errors. An empty text is a pattern that is not set. Throws: InvalidArgument for what
  /// is no regular expression.
  NamePattern(const std::string& field, const std::string& text);
  ~NamePattern();

  bool is_set() const { return pattern_ != nullptr; }
  /// REQUIRES: is_set().
  bool matches(const std::string& name) const;
  bool matches_or(const std::string& name, bool where_unset) const {
    return is_set() ? matches(name) : where_unset;
  }

 private:
  std::unique_ptr<re2::RE2> pattern_;
};

}  // namespace braid::worker
