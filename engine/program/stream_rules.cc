#include "engine/program/stream_rules.h"

#include <re2/re2.h>
#include <re2/set.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "base/error.h"

namespace braid {

struct StreamRules::Impl {
  std::string source;
  std::vector<Rule> rules;
  std::vector<std::unique_ptr<RE2>> patterns;
  std::vector<int> rule_of;       // by pattern, ascending
  std::unique_ptr<RE2::Set> all;  // the patterns, looked for in one pass: graphs have many names
};

namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const auto begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

/// Of a file that is something else a line may be all of it.
std::string shown(std::string_view text) {
  constexpr std::size_t kMost = 200;
  return std::string(text.substr(0, kMost)) + (text.size() > kMost ? "..." : "");
}

/// At commas without a backslash; `\,` becomes a comma. Every other escape stays the regex's.
std::vector<std::string> split_patterns(std::string_view text) {
  std::vector<std::string> parts(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) {
      if (text[i + 1] != ',') parts.back() += '\\';
      parts.back() += text[++i];
    } else if (text[i] == ',') {
      parts.emplace_back();
    } else {
      parts.back() += text[i];
    }
  }
  return parts;
}

int parse_stream(std::string_view text, const std::string& place) {
  int stream = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), stream);
  if (error != std::errc{} || end != text.data() + text.size() || stream < 0)
    throw InvalidArgument(place + ": '" + shown(text) + "' is not a stream");
  return stream;
}

/// Null where they are too large for one.
std::unique_ptr<RE2::Set> joined(const std::vector<std::unique_ptr<RE2>>& patterns) {
  RE2::Options options(RE2::Quiet);
  options.set_max_mem(std::int64_t{256} << 20);
  auto all = std::make_unique<RE2::Set>(options, RE2::ANCHOR_BOTH);
  for (const auto& pattern : patterns)
    if (all->Add(pattern->pattern(), nullptr) < 0) return nullptr;
  return all->Compile() ? std::move(all) : nullptr;
}

std::unique_ptr<RE2> parse_pattern(const std::string& text, const std::string& place) {
  if (text.empty()) throw InvalidArgument(place + ": an empty regular expression");
  auto pattern = std::make_unique<RE2>(text, RE2::Quiet);
  if (!pattern->ok()) throw InvalidArgument(place + ": '" + text + "': " + pattern->error());
  return pattern;
}

}  // namespace

StreamRules StreamRules::parse(std::string_view text, std::string source) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  auto impl = std::make_shared<Impl>();
  impl->source = std::move(source);
  int number = 0;
  for (std::size_t at = 0; at <= text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = trimmed(text.substr(at, end - at));
    at = end + 1;
    if (line.empty() || line.front() == '#') continue;
    const std::string place = impl->source + ":" + std::to_string(number + 1);
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos)
      throw InvalidArgument(place + ": '" + shown(line) + "' is not of the form id:regex,regex");
    impl->rules.push_back(
        {parse_stream(trimmed(line.substr(0, colon)), place), number + 1, std::string(line)});
    for (const std::string& part : split_patterns(line.substr(colon + 1))) {
      impl->patterns.push_back(parse_pattern(std::string(trimmed(part)), place));
      impl->rule_of.push_back(static_cast<int>(impl->rules.size()) - 1);
    }
  }
  impl->all = joined(impl->patterns);
  return StreamRules(std::move(impl));
}

StreamRules StreamRules::read(const std::filesystem::path& file) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored))
    throw InvalidArgument("cannot read stream rules '" + file.string() + "': Is a directory");
  std::ifstream in(file);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in.is_open() || in.bad())
    throw InvalidArgument("cannot read stream rules '" + file.string() + "': " + std::strerror(errno));
  return parse(text, file.string());
}

std::vector<int> StreamRules::find_patterns(std::string_view name) const {
  const re2::StringPiece piece(name.data(), name.size());
  std::vector<int> found;
  RE2::Set::ErrorInfo error{RE2::Set::kNotCompiled};
  if (impl_->patterns.empty()) return found;
  if (!impl_->all || (!impl_->all->Match(piece, &found, &error) && error.kind != RE2::Set::kNoError)) {
    found.clear();
    for (std::size_t i = 0; i < impl_->patterns.size(); ++i)
      if (RE2::FullMatch(piece, *impl_->patterns[i])) found.push_back(static_cast<int>(i));
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<int> StreamRules::find_all(std::string_view name) const {
  std::vector<int> found = find_patterns(name);
  for (int& pattern : found) pattern = rule_of_pattern(pattern);
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

std::optional<int> StreamRules::find(std::string_view name) const {
  const std::vector<int> found = find_all(name);
  return found.empty() ? std::nullopt : std::optional(found.front());
}

const std::string& StreamRules::source() const { return impl_->source; }

int StreamRules::size() const { return static_cast<int>(impl_->rules.size()); }

const StreamRules::Rule& StreamRules::rule(int index) const {
  return impl_->rules[static_cast<std::size_t>(index)];
}

int StreamRules::patterns() const { return static_cast<int>(impl_->patterns.size()); }

const std::string& StreamRules::pattern(int index) const {
  return impl_->patterns[static_cast<std::size_t>(index)]->pattern();
}

int StreamRules::rule_of_pattern(int index) const { return impl_->rule_of[static_cast<std::size_t>(index)]; }

std::string StreamRules::place(int index) const {
  return impl_->source + ":" + std::to_string(rule(index).line);
}

}  // namespace braid
