// Vocabularies by frequency: the words of every categorical feature of data files, the most frequent first.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "engine/input/formats/example.h"

namespace braid::cli {

class VocabularyCounter {
 public:
  /// Different words of a feature above which it is given up; and features whose texts are lists, with what
  /// stands between their items.
  explicit VocabularyCounter(std::size_t most_words, std::map<std::string, char, std::less<>> lists = {})
      : most_words_(most_words), lists_(std::move(lists)) {}

  /// Bytes, of lists their items, and integers as decimal text. Empty words and "?" are missing ones.
  void add(const FeatureSet& record);

  /// <directory>/<feature>.txt, a word a line, for `vocabulary_file`: words that came at least `least` times,
  /// by how often, then by their bytes. Words with line ends, which such a file cannot hold, are left out.
  /// Returns a line for people about each feature.
  std::string write(const std::filesystem::path& directory, std::int64_t least) const;

 private:
  struct Words {
    std::unordered_map<std::string, std::int64_t> counts;
    bool too_many = false;
  };
  void add(Words& words, std::string_view word);
  void add_items(Words& words, std::string_view list, char separator);

  const std::size_t most_words_;
  const std::map<std::string, char, std::less<>> lists_;
  std::map<std::string, Words, std::less<>> features_;
  std::string key_;
};

}  // namespace braid::cli
