#include "engine/input/schema/time_parts.h"

#include <charconv>
#include <chrono>
#include <cmath>

namespace braid {
namespace {

/// Reads a text from its front.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}
  bool empty() const { return text_.empty(); }
  bool take(char c) {
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  /// Exactly so many digits.
  bool take(int digits, int& value) {
    const auto count = static_cast<std::size_t>(digits);
    if (text_.size() < count) return false;
    for (const char c : text_.substr(0, count))
      if (c < '0' || c > '9') return false;
    std::from_chars(text_.data(), text_.data() + count, value);
    text_.remove_prefix(count);
    return true;
  }
  /// The digits behind a point.
  double take_fraction() {
    double value = 0, unit = 0.1;
    for (; !text_.empty() && text_.front() >= '0' && text_.front() <= '9'; text_.remove_prefix(1), unit /= 10)
      value += unit * (text_.front() - '0');
    return value;
  }

 private:
  std::string_view text_;
};

/// "12:30", "12:30:00", "12:30:00.5".
bool take_clock(Scanner& text, double& seconds) {
  int hour = 0, minute = 0, second = 0;
  double fraction = 0;
  if (!text.take(2, hour) || !text.take(':') || !text.take(2, minute)) return false;
  if (text.take(':')) {
    if (!text.take(2, second)) return false;
    if (text.take('.') || text.take(',')) fraction = text.take_fraction();
  }
  if (hour > 23 || minute > 59 || second > 60) return false;
  seconds = hour * 3600 + minute * 60 + second + fraction;
  return true;
}

/// "Z", "+01:00", "-0530", or nothing.
bool take_zone(Scanner& text, double& seconds) {
  seconds = 0;
  if (text.empty() || text.take('Z') || text.take('z')) return true;
  const bool east = text.take('+');
  int hours = 0, minutes = 0;
  if (!east && !text.take('-')) return false;
  if (!text.take(2, hours)) return false;
  text.take(':');
  if (!text.empty() && !text.take(2, minutes)) return false;
  if (hours > 23 || minutes > 59) return false;
  seconds = (east ? 1 : -1) * (hours * 3600 + minutes * 60);
  return true;
}

std::optional<double> of_date(std::string_view text) {
  Scanner from(text);
  int year = 0, month = 0, day = 0;
  if (!from.take(4, year) || !from.take('-') || !from.take(2, month) || !from.take('-') || !from.take(2, day))
    return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok()) return std::nullopt;
  double clock = 0, zone = 0;
  if (from.take('T') || from.take(' '))
    if (!take_clock(from, clock) || !take_zone(from, zone)) return std::nullopt;
  if (!from.empty()) return std::nullopt;
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  return static_cast<double>(days) * 86400 + clock - zone;
}

}  // namespace

std::int64_t ids_of_part(TimePart part) {
  switch (part) {
    case TimePart::Minute:
      return 60;
    case TimePart::Hour:
      return 24;
    case TimePart::Weekday:
      return 7;
    case TimePart::MonthDay:
      return 31;
    case TimePart::Month:
      return 12;
    case TimePart::YearDay:
      return 366;
    default:
      return 0;
  }
}

double seconds_of_number(double number) {
  const double size = std::abs(number);
  if (size < 1e11) return number;
  return number / (size < 1e14 ? 1e3 : size < 1e17 ? 1e6 : 1e9);
}

std::optional<double> seconds_of_text(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size())
    return std::isfinite(number) ? std::optional(seconds_of_number(number)) : std::nullopt;
  return of_date(text);
}

std::int64_t part_of_time(TimePart part, double seconds) {
  const auto whole = static_cast<std::int64_t>(std::floor(seconds));
  const std::int64_t day = (whole >= 0 ? whole : whole - 86399) / 86400, of_day = whole - day * 86400;
  if (part == TimePart::Minute) return of_day / 60 % 60;
  if (part == TimePart::Hour) return of_day / 3600;
  const std::chrono::sys_days date{std::chrono::days(day)};
  if (part == TimePart::Weekday) return std::chrono::weekday(date).iso_encoding() - 1;
  const std::chrono::year_month_day parts(date);
  if (part == TimePart::MonthDay) return static_cast<unsigned>(parts.day()) - 1;
  if (part == TimePart::Month) return static_cast<unsigned>(parts.month()) - 1;
  return (date - std::chrono::sys_days(parts.year() / 1 / 1)).count();
}

}  // namespace braid
