// Streams by name: a text with a rule a line, `id:regex,regex`, each regex (RE2) matched against the whole
// name of a node; a comma inside a regex is written `\,`; `#` begins a comment line. The first rule that
// matches decides. Which nodes a rule finds, and how strong it is beside scopes, is the business of
// engine/schedule/streams.cc. Thread rule: immutable once parsed.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace braid {

class StreamRules {
 public:
  struct Rule {
    int stream = 0;
    int line = 0;      // in the text, from 1
    std::string text;  // the line
  };

  /// `source` names the text in messages: "rules.txt:3: ...".
  /// Throws: InvalidArgument for a line that is no rule, with its number and why.
  static StreamRules parse(std::string_view text, std::string source);
  /// Throws: InvalidArgument also for a file that cannot be read.
  static StreamRules read(const std::filesystem::path& file);

  /// The position of the first rule that matches the name.
  std::optional<int> find(std::string_view name) const;
  /// Of all that do, ascending.
  std::vector<int> find_all(std::string_view name) const;
  const std::string& source() const;
  int size() const;
  const Rule& rule(int index) const;
  /// The regexes of all rules, in their order.
  int patterns() const;
  const std::string& pattern(int index) const;
  int rule_of_pattern(int index) const;
  /// Of all that match the name, ascending.
  std::vector<int> find_patterns(std::string_view name) const;
  /// "rules.txt:3".
  std::string place(int index) const;

 private:
  struct Impl;
  explicit StreamRules(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace braid
