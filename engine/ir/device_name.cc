#include "engine/ir/device_name.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/error.h"

namespace braid {
namespace {

std::string upper(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return result;
}

bool is_identifier(std::string_view text) {
  return !text.empty() && std::isalpha(static_cast<unsigned char>(text[0])) != 0 &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; });
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  DeviceName parse() {
    std::string_view rest = text_;
    if (!rest.empty() && rest.front() != '/') {
      read_kind(rest);
      return name_;
    }
    while (!rest.empty()) {
      rest.remove_prefix(1);
      const std::size_t end = std::min(rest.find('/'), rest.size());
      read_part(rest.substr(0, end));
      rest.remove_prefix(end);
    }
    return name_;
  }

 private:
  [[noreturn]] void refuse(std::string_view part) const {
    throw InvalidArgument("'" + std::string(text_) + "' is not a device's name: '" + std::string(part) +
                          "' is neither job:NAME, replica:N, task:N, device:KIND:N, cpu:N nor gpu:N");
  }

  template <class T>
  void set(std::optional<T>& field, T value, std::string_view part) const {
    if (field && *field != value)
      throw InvalidArgument("'" + std::string(text_) + "' is not a device's name: '" + std::string(part) +
                            "' says again what was said before");
    field = std::move(value);
  }

  void set_number(std::optional<int>& field, std::string_view digits, std::string_view part) const {
    if (digits == "*") return;
    int number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc() || end != digits.data() + digits.size() || number < 0) refuse(part);
    set(field, number, part);
  }

  void read_part(std::string_view part) {
    const std::size_t colon = part.find(':');
    if (colon == std::string_view::npos) refuse(part);
    const std::string_view key = part.substr(0, colon), value = part.substr(colon + 1);
    if (key == "job") {
      if (value == "*") return;
      if (!is_identifier(value)) refuse(part);
      set(name_.job, std::string(value), part);
    } else if (key == "replica") {
      set_number(name_.replica, value, part);
    } else if (key == "task") {
      set_number(name_.task, value, part);
    } else if (key == "device") {
      read_kind(value);
    } else if (const std::string kind = upper(key); kind == "CPU" || kind == "GPU") {
      read_kind(part);
    } else {
      refuse(part);
    }
  }

  /// "GPU:2", "GPU", "*".
  void read_kind(std::string_view part) {
    const std::size_t colon = std::min(part.find(':'), part.size());
    const std::string_view kind = part.substr(0, colon);
    if (kind != "*") {
      if (!is_identifier(kind)) refuse(part);
      set(name_.kind, upper(kind), part);
    }
    if (colon < part.size()) set_number(name_.index, part.substr(colon + 1), part);
  }

  std::string_view text_;
  DeviceName name_;
};

}  // namespace

DeviceName parse_device_name(std::string_view text) { return Parser(text).parse(); }

std::string full_device_name(const DeviceName& name) {
  return "/job:" + name.job.value_or("localhost") + "/replica:" + std::to_string(name.replica.value_or(0)) +
         "/task:" + std::to_string(name.task.value_or(0)) + "/device:" + name.kind.value_or("CPU") + ":" +
         std::to_string(name.index.value_or(0));
}

}  // namespace braid
