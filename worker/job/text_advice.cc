#include "worker/job/text_advice.h"

#include <algorithm>
#include <cctype>

namespace braid::worker {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

std::string_view line_of(std::string_view text, int line) {
  for (; line > 0; --line) {
    const auto end = text.find('\n');
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + 1);
  }
  return text.substr(0, text.find('\n'));
}

/// Of a character that is not ASCII, outside of quotes.
std::string of_characters(std::string_view text, std::string_view line) {
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"))
    return "the text is UTF-16: save it as UTF-8";
  for (const char* const quote :
       {"\xE2\x80\x9C", "\xE2\x80\x9D", "\xE2\x80\x9E", "\xE2\x80\x98", "\xE2\x80\x99"})
    if (line.find(quote) != std::string_view::npos) return "these are typographic quotes: write \"";
  if (line.find("\xC2\xA0") != std::string_view::npos)
    return "this is a blank that does not break: write a plain one";
  return "letters that are not ASCII stand in quotes and comments alone";
}

/// Where the name of a field was expected.
std::string of_identifier(std::string_view rest, std::string_view before, bool first) {
  if (rest.starts_with("//") || rest.starts_with("/*")) return "comments begin with #";
  if (first && (rest.starts_with('{') || rest.starts_with('[')))
    return "this looks like JSON; a job has fields as in name: \"mine\" model { name: \"mlp\" }";
  if (rest.starts_with('}')) return "it closes no brace";
  if (rest.empty()) return "the text ends before a value, or before a '}'";
  if (before.size() > 1 && before.back() == ',' && is_digit(before[before.size() - 2]) && is_digit(rest[0]))
    return "numbers have a decimal point, as 0.05, and of several values each has the field's name before it";
  return {};
}

std::string advice(const std::string& message, std::string_view text, int line, int column) {
  const auto says = [&](const char* part) { return message.find(part) != std::string::npos; };
  const std::string_view here = line_of(text, line);
  const auto at = std::min(here.size(), static_cast<std::size_t>(std::max(column, 0)));
  const std::string_view rest = here.substr(at), before = here.substr(0, at);
  if (says("non ascii")) return of_characters(text, here);
  if (says("Expected identifier")) return of_identifier(rest, before, line == 0 && column == 0);
  if (says("specified multiple times"))
    return "it has one value: leave one of them, or write both into one { }";
  if (says("Need space between number"))
    return "numbers have no units: the field's name, or its page, says the unit";
  if (says("Expected string")) return "texts stand in quotes";
  if (says("found \"=\"")) return "write field: value";
  if (says("Expected integer, got: \"")) return "numbers stand without quotes";
  if (says("Expected integer, got: -")) return "it cannot be negative";
  if (says("Expected integer") && rest.find('.') != std::string_view::npos) return "it takes a whole number";
  if (says("boolean field")) return "write true or false";
  if (says("Extension")) return "sections are blocks of a field: model { name: \"mlp\" }";
  return {};
}

}  // namespace

std::string with_advice(const std::string& message, std::string_view text, int line, int column) {
  const std::string more = advice(message, text, line, column);
  if (more.empty()) return message;
  const bool stop = message.ends_with('.');
  return message.substr(0, message.size() - (stop ? 1 : 0)) + "; " + more;
}

}  // namespace braid::worker
