// Shares of a device's multiprocessors for streams: what `streams.partition` says, and what a device can
// give. An entry is "32:group0/.*": how many, and an RE2 for all of a stream's name. The amount is a number,
// a part of the device ("25%"), or "rest": what the others leave. Of several entries that fit a name the
// first one counts; a stream that none fits has all multiprocessors. An entry without a pattern ("32:") sets
// multiprocessors aside, for another process. Thread rule: values; share_out() before the device has streams.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace braid {

class Accelerator;

struct SmShare {
  enum class Unit { Count, Percent, Rest };
  Unit unit = Unit::Rest;
  int amount = 0;  // of Count and Percent; above 0
  std::string match;
  std::string text;  // as it was written
};

/// Throws: InvalidArgument, with the entry, for one that is none, patterns that are none, several entries of
/// "rest", and parts that are more than all.
std::vector<SmShare> parse_sm_shares(std::span<const std::string> entries);

/// A device gives whole units of so many multiprocessors, and those beyond the last unit to "rest".
struct SmUnits {
  int count = 0;
  int size = 1;
  int beyond = 0;
  int all() const { return count * size + beyond; }
};
/// Units of each share, in their order: numbers and parts are rounded up. Throws: InvalidArgument where they
/// are more than there are, or nothing is left for "rest".
std::vector<int> share_out(const std::vector<SmShare>& shares, const SmUnits& units);

/// Which share a stream has.
class SmShareNames {
 public:
  explicit SmShareNames(const std::vector<SmShare>& shares);
  ~SmShareNames();
  SmShareNames(const SmShareNames&) = delete;
  SmShareNames& operator=(const SmShareNames&) = delete;

  /// The first whose pattern fits all of the name; -1: none.
  int share_of(const std::string& stream) const;

 private:
  struct Patterns;
  std::unique_ptr<Patterns> patterns_;
};

/// Streams that the device makes from now on have these shares: kernels of a stream whose name an entry fits
/// run on that share's multiprocessors, in captured graphs too. Called once for a device. Throws:
/// InvalidArgument where the shares are more than the device has, or the driver or this build gives none;
/// DeviceError.
void share_out(Accelerator& device, const std::vector<SmShare>& shares);

/// What each of these streams has, for people, in lines; empty: nothing is shared out.
std::string shares_text(const std::vector<SmShare>& shares, std::span<const std::string> streams);

}  // namespace braid
