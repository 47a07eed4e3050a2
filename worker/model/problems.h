// What keeps a graph from being a job's model, all of it at once. Thread rule: one thread.
#pragma once

#include <string>
#include <vector>

namespace braid::worker {

class Problems {
 public:
  /// `source`: the file, in front of the text.
  explicit Problems(std::string source) : source_(std::move(source)) {}

  void add(std::string text) { texts_.push_back(std::move(text)); }
  bool none() const { return texts_.empty(); }
  const std::vector<std::string>& texts() const { return texts_; }
  /// Throws: InvalidArgument with all of them, when there are some.
  void refuse() const;

 private:
  std::string source_;
  std::vector<std::string> texts_;
};

/// "'a', 'b', 'c' and 4 more".
std::string quoted_list(const std::vector<std::string>& names, std::size_t most = 8);

}  // namespace braid::worker
