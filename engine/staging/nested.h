// Nested structures of tensors, as features come: a tensor, an absent entry, a list or a dictionary of
// structures, a sparse triple (indices, values, dense shape) or a ragged pair (values, row splits). A
// structure is a tree; its leaves have one order (lists as they are, dictionaries by key, sparse and ragged
// entries as named above), so that it can be taken apart, sent through a buffer as a list of tensors, and put
// together again. Thread rule: values.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace braid {

enum class NestedKind { Absent, Leaf, List, Dict, Sparse, Ragged };

template <class Leaf>
class Nested {
 public:
  using Kind = NestedKind;

  Nested() = default;                                                            // an absent entry
  Nested(Leaf leaf) : kind_(Kind::Leaf) { leaves_.push_back(std::move(leaf)); }  // NOLINT: implicit by design

  static Nested list(std::vector<Nested> items) {
    Nested made(Kind::List);
    made.items_ = std::move(items);
    return made;
  }
  static Nested dict(std::map<std::string, Nested> items) {
    Nested made(Kind::Dict);
    for (auto& [key, item] : items) {
      made.keys_.push_back(key);
      made.items_.push_back(std::move(item));
    }
    return made;
  }
  static Nested sparse(Leaf indices, Leaf values, Leaf dense_shape) {
    Nested made(Kind::Sparse);
    made.leaves_ = {std::move(indices), std::move(values), std::move(dense_shape)};
    return made;
  }
  static Nested ragged(Leaf values, Leaf row_splits) {
    Nested made(Kind::Ragged);
    made.leaves_ = {std::move(values), std::move(row_splits)};
    return made;
  }

  Kind kind() const { return kind_; }
  bool absent() const { return kind_ == Kind::Absent; }
  /// Throws: InvalidArgument when it is no leaf.
  const Leaf& leaf() const {
    if (kind_ != Kind::Leaf) throw InvalidArgument("not a tensor but " + to_string());
    return leaves_[0];
  }
  // Of a Sparse or Ragged entry; in the order of sparse() and ragged().
  const std::vector<Leaf>& parts() const { return leaves_; }
  // Of a List, or of a Dict by the order of its keys.
  const std::vector<Nested>& items() const { return items_; }
  const std::vector<std::string>& keys() const { return keys_; }
  /// Throws: InvalidArgument when there is no such key or position.
  const Nested& operator[](const std::string& key) const {
    for (std::size_t i = 0; i < keys_.size(); ++i)
      if (keys_[i] == key) return items_[i];
    throw InvalidArgument("no entry '" + key + "' in " + to_string());
  }
  const Nested& operator[](std::size_t position) const {
    if (position < items_.size()) return items_[position];
    throw InvalidArgument("no entry " + std::to_string(position) + " in " + to_string());
  }

  /// Leaves of the whole tree.
  std::size_t size() const {
    std::size_t count = leaves_.size();
    for (const Nested& item : items_) count += item.size();
    return count;
  }
  std::vector<Leaf> flatten() const {
    std::vector<Leaf> all;
    all.reserve(size());
    append_to(all);
    return all;
  }
  /// The same structure over other leaves, which may be of another type.
  /// Throws: InvalidArgument when their number is not size().
  template <class Other>
  Nested<Other> with_leaves(std::span<const Other> leaves) const {
    if (leaves.size() != size())
      throw InvalidArgument(to_string() + " takes " + std::to_string(size()) + " tensors, got " +
                            std::to_string(leaves.size()));
    std::size_t next = 0;
    return build(leaves, next);
  }

  /// "{a: *, b: [*, none], s: sparse}".
  std::string to_string() const {
    switch (kind_) {
      case Kind::Absent:
        return "none";
      case Kind::Leaf:
        return "*";
      case Kind::Sparse:
        return "sparse";
      case Kind::Ragged:
        return "ragged";
      default:
        break;
    }
    const bool is_list = kind_ == Kind::List;
    std::string text(is_list ? "[" : "{");
    for (std::size_t i = 0; i < items_.size(); ++i)
      text += (i ? ", " : "") + (is_list ? std::string() : keys_[i] + ": ") + items_[i].to_string();
    return text + (is_list ? "]" : "}");
  }

 private:
  template <class Other>
  friend class Nested;
  explicit Nested(Kind kind) : kind_(kind) {}

  void append_to(std::vector<Leaf>& all) const {
    all.insert(all.end(), leaves_.begin(), leaves_.end());
    for (const Nested& item : items_) item.append_to(all);
  }

  template <class Other>
  Nested<Other> build(std::span<const Other> leaves, std::size_t& next) const {
    Nested<Other> made(kind_);
    made.keys_ = keys_;
    for (std::size_t i = 0; i < leaves_.size(); ++i) made.leaves_.push_back(leaves[next++]);
    for (const Nested& item : items_) made.items_.push_back(item.build(leaves, next));
    return made;
  }

  Kind kind_ = Kind::Absent;
  std::vector<Leaf> leaves_;  // one, three of a Sparse, two of a Ragged entry
  std::vector<std::string> keys_;
  std::vector<Nested> items_;
};

}  // namespace braid
