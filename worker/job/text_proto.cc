#include "worker/job/text_proto.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cctype>
#include <numeric>

#include "base/error.h"
#include "worker/job/text_advice.h"

namespace braid::worker {
namespace {

namespace pb = google::protobuf;

/// The quoted words of a message of protobuf's parser.
std::vector<std::string> quoted(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; (at = text.find('"', at)) != std::string::npos;) {
    const std::size_t end = text.find('"', at + 1);
    if (end == std::string::npos) break;
    words.push_back(text.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return words;
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// A number that stands for itself and has names for a few values.
bool is_open(const pb::EnumDescriptor& type) { return type.full_name() == "braid.proto.Staging.Count"; }

/// The names of the values of `type`'s enum field `field`; none when it has no such field.
std::vector<std::string> enum_values(const pb::Descriptor& type, const std::string& field) {
  std::vector<std::string> values;
  const auto* found = type.FindFieldByName(field);
  if (!found || !found->enum_type()) return values;
  for (int v = 0; v < found->enum_type()->value_count(); ++v)
    values.push_back(found->enum_type()->value(v)->name());
  if (is_open(*found->enum_type())) values.emplace_back("a number");
  return values;
}

/// The type of the message that is open at a place of `text`, which the parser does not tell; null where the
/// text names a field that is none.
const pb::Descriptor* message_at(std::string_view text, int line, int column, const pb::Descriptor& top) {
  std::vector<const pb::Descriptor*> open{&top};
  std::string_view field;
  int at_line = 0, at_column = 0;
  char quote = 0;
  bool comment = false;
  for (std::size_t i = 0; i < text.size() && (at_line < line || at_column < column); ++i, ++at_column) {
    const char c = text[i];
    if (c == '\n') {
      ++at_line, at_column = -1;
      comment = false;
    }
    if (comment) continue;
    if (quote != 0) {
      if (c == '\\')
        ++i, ++at_column;
      else if (c == quote)
        quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '#') {
      comment = true;
    } else if (c == '{' || c == '<') {
      const auto* found = open.back() ? open.back()->FindFieldByName(std::string(field)) : nullptr;
      open.push_back(found ? found->message_type() : nullptr);
    } else if ((c == '}' || c == '>') && open.size() > 1) {
      open.pop_back();
    } else if (is_word(c)) {
      std::size_t end = i;
      while (end < text.size() && is_word(text[end])) ++end;
      field = text.substr(i, end - i);
      at_column += static_cast<int>(end - i) - 1;
      i = end - 1;
    }
  }
  return open.back();
}

std::string unknown_value(const std::string& value, const std::string& field, const pb::Descriptor& type) {
  const auto values = enum_values(type, field);
  return "unknown value '" + value + "' of field '" + field + "'" +
         (values.empty() ? "" : did_you_mean(value, values));
}

/// Adds the nearest known name to "no field named" and "unknown enumeration value" messages. `type`: of the
/// message that they are about.
std::string with_hint(const std::string& message, const pb::Descriptor& type) {
  const auto words = quoted(message);
  if (words.size() < 2) return message;
  const auto* pool = pb::DescriptorPool::generated_pool();
  if (message.find("no field named") != std::string::npos) {
    if (const auto* named = pool->FindMessageTypeByName(words[0]))
      return "unknown field '" + words[1] + "' in " + named->name() +
             did_you_mean(words[1], field_names(*named));
  }
  if (message.find("nknown enumeration value") != std::string::npos)
    return unknown_value(words[0], words[1].substr(words[1].rfind('.') + 1), type);
  return message;
}

/// The parser takes any number for an enum. Throws: InvalidArgument for one that is no value.
void check_enums(const pb::Message& message, const std::string& place) {
  const pb::Reflection& reflection = *message.GetReflection();
  std::vector<const pb::FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const pb::FieldDescriptor* field : fields) {
    const std::string here = place + field->name();
    if (field->message_type()) {
      if (!field->is_repeated()) check_enums(reflection.GetMessage(message, field), here + ".");
      for (int i = 0; field->is_repeated() && i < reflection.FieldSize(message, field); ++i)
        check_enums(reflection.GetRepeatedMessage(message, field, i), here + ".");
    } else if (field->enum_type() && !field->is_repeated() && !is_open(*field->enum_type())) {
      const int value = reflection.GetEnumValue(message, field);
      if (field->enum_type()->FindValueByNumber(value)) continue;
      std::string known;
      for (const std::string& name : enum_values(*message.GetDescriptor(), field->name()))
        known += (known.empty() ? "" : ", ") + name;
      throw InvalidArgument(here + ": unknown value " + std::to_string(value) + "; known: " + known);
    }
  }
}

class Collector : public pb::io::ErrorCollector {
 public:
  Collector(std::string_view source, std::string_view parsed, const pb::Descriptor& top)
      : source_(source), parsed_(parsed), top_(top) {}
  void AddError(int line, pb::io::ColumnNumber column, const std::string& message) override {
    if (!text.empty()) return;  // what follows the first is noise
    const pb::Descriptor* const type = message_at(parsed_, line, column, top_);
    text = source_ + ":" + std::to_string(line + 1) + ":" + std::to_string(column + 1) + ": " +
           with_advice(with_hint(message, type ? *type : top_), parsed_, line, column);
  }
  void AddWarning(int, pb::io::ColumnNumber, const std::string&) override {}
  std::string text;

 private:
  std::string source_;
  std::string_view parsed_;
  const pb::Descriptor& top_;
};

void parse_into(std::string_view text, std::string_view source, pb::Message& message, bool merge) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a byte order mark, as editors write it
  Collector errors(source, text, *message.GetDescriptor());
  pb::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  const std::string copy(text);
  const bool good = merge ? parser.MergeFromString(copy, &message) : parser.ParseFromString(copy, &message);
  if (!good)
    throw InvalidArgument(errors.text.empty()
                              ? std::string(source) + ": not a " + message.GetDescriptor()->name()
                              : errors.text);
  check_enums(message, std::string(source) + ": ");
}

}  // namespace

std::string text_value(const std::string& value) {
  const bool plain = std::none_of(value.begin(), value.end(), [](char c) {
    return c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' ';
  });
  if (plain) return value;
  std::string text = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    text += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return text + "\"";
}

void parse_text(std::string_view text, std::string_view source, pb::Message& message) {
  parse_into(text, source, message, false);
}

void merge_text(std::string_view text, std::string_view source, pb::Message& message) {
  parse_into(text, source, message, true);
}

std::vector<std::string> field_names(const pb::Descriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i)
    if (!type.field(i)->options().deprecated()) names.push_back(type.field(i)->name());
  return names;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string best = nearest(word, candidates);
  std::string all;
  for (const auto& c : candidates) all += (all.empty() ? "" : ", ") + c;
  return (best.empty() ? "" : "; did you mean '" + best + "'?") +
         std::string(best.empty() ? "; known: " + all : "");
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 2) + 1;
  for (const auto& candidate : candidates) {
    std::vector<std::size_t> row(candidate.size() + 1);
    std::iota(row.begin(), row.end(), 0);
    for (std::size_t i = 1; i <= word.size(); ++i) {
      std::size_t diagonal = row[0];
      row[0] = i;
      for (std::size_t j = 1; j <= candidate.size(); ++j) {
        const bool same = std::tolower(word[i - 1]) == std::tolower(candidate[j - 1]);
        const std::size_t next = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (same ? 0 : 1)});
        diagonal = row[j];
        row[j] = next;
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

}  // namespace braid::worker
