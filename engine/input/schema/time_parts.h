// Times as texts and numbers, and what they are parts of: hours, weekdays. All is UTC. Thread rule: pure
// functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace braid {

enum class TimePart { None, Minute, Hour, Weekday, MonthDay, Month, YearDay, Seconds };

/// Number of different ids of a part; 0 of Seconds.
std::int64_t ids_of_part(TimePart part);

/// Seconds since 1970 of "2026-03-01", "2026-03-01 12:30", "2026-03-01T12:30:00.25Z", "...+01:00", or of a
/// number as seconds_of_number() has it; nothing where the text is none of these, or no date.
std::optional<double> seconds_of_text(std::string_view text);
/// Of a number since 1970 whose unit is told from its size: below 1e11 seconds, 1e14 milliseconds, 1e17
/// microseconds, else nanoseconds.
double seconds_of_number(double number);

/// Monday and January are 0, and so is the first of a month and a year. REQUIRES: neither None nor Seconds.
std::int64_t part_of_time(TimePart part, double seconds);

}  // namespace braid
