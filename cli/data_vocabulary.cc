#include "cli/data_vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files.h"

namespace braid::cli {
namespace {

/// A feature's name as a file's.
std::string file_name(std::string_view feature) {
  std::string name(feature);
  for (char& c : name)
    if (c == '/' || c == '\0' || c == '\n') c = '_';
  return name.starts_with('.') ? "_" + name : name;
}

}  // namespace

void VocabularyCounter::add(Words& words, std::string_view word) {
  if (words.too_many || word.empty() || word == "?") return;
  key_.assign(word);
  ++words.counts[key_];
  if (words.counts.size() <= most_words_) return;
  words.too_many = true;
  words.counts.clear();
}

void VocabularyCounter::add_items(Words& words, std::string_view list, char separator) {
  for (std::size_t begin = 0, end = 0; begin <= list.size(); begin = end + 1) {
    end = std::min(list.find(separator, begin), list.size());
    add(words, list.substr(begin, end - begin));
  }
}

void VocabularyCounter::add(const FeatureSet& record) {
  for (const Feature& feature : record.features()) {
    if (feature.kind != FeatureKind::Bytes && feature.kind != FeatureKind::Int64) continue;
    auto at = features_.find(feature.name);
    if (at == features_.end()) at = features_.emplace(std::string(feature.name), Words{}).first;
    const auto list = lists_.find(feature.name);
    if (feature.kind == FeatureKind::Bytes && list != lists_.end())
      for (const std::string_view text : record.bytes(feature)) add_items(at->second, text, list->second);
    else if (feature.kind == FeatureKind::Bytes)
      for (const std::string_view word : record.bytes(feature)) add(at->second, word);
    else
      for (const std::int64_t value : record.ints(feature)) add(at->second, std::to_string(value));
  }
}

std::string VocabularyCounter::write(const std::filesystem::path& directory, std::int64_t least) const {
  std::string told;
  std::filesystem::create_directories(directory);
  for (const auto& [feature, words] : features_) {
    if (words.too_many) {
      told += fmt::format("{:<24} more than {} different words: no vocabulary\n", feature, most_words_);
      continue;
    }
    std::vector<std::pair<std::int64_t, std::string_view>> order;
    std::int64_t of_words = 0, all = 0;
    for (const auto& [word, count] : words.counts) {
      all += count;
      if (count < least || word.find_first_of("\r\n") != std::string::npos) continue;
      order.emplace_back(-count, word);
      of_words += count;
    }
    std::sort(order.begin(), order.end());
    std::string text;
    for (const auto& [count, word] : order) text.append(word).append("\n");
    const std::filesystem::path file = directory / (file_name(feature) + ".txt");
    write_file_atomically(file, text);
    told += fmt::format(
        "{:<24} {} of {} words, {:.2f} % of the values: {}\n", feature, order.size(), words.counts.size(),
        all == 0 ? 0.0 : 100.0 * static_cast<double>(of_words) / static_cast<double>(all), file.string());
  }
  return told;
}

}  // namespace braid::cli
