#include "engine/device/sm_shares.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <charconv>

#include "base/error.h"

namespace braid {
namespace {

std::unique_ptr<RE2> compiled(const std::string& pattern) {
  RE2::Options options;
  options.set_log_errors(false);
  return std::make_unique<RE2>(pattern, options);
}

SmShare parse(const std::string& text) {
  const auto fail = [&](const std::string& why) {
    throw InvalidArgument(
        fmt::format("streams.partition '{}': {}; an entry is \"32:group0/.*\" (how many multiprocessors, or "
                    "25%, or rest, "
                    "and a regular expression for all of a stream's name)",
                    text, why));
  };
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) fail("there is no ':'");
  std::string amount = text.substr(0, colon);
  SmShare share{SmShare::Unit::Count, 0, text.substr(colon + 1), text};
  if (const auto pattern = compiled(share.match); !pattern->ok()) fail(pattern->error());
  if (amount == "rest") {
    share.unit = SmShare::Unit::Rest;
    return share;
  }
  if (amount.ends_with('%')) {
    share.unit = SmShare::Unit::Percent;
    amount.pop_back();
  }
  const auto [end, error] = std::from_chars(amount.data(), amount.data() + amount.size(), share.amount);
  if (error != std::errc{} || end != amount.data() + amount.size() || share.amount < 1)
    fail(fmt::format("'{}' is no number of multiprocessors", text.substr(0, colon)));
  return share;
}

int rounded_up(int amount, int unit) { return (amount + unit - 1) / unit; }

}  // namespace

std::vector<SmShare> parse_sm_shares(std::span<const std::string> entries) {
  std::vector<SmShare> shares;
  int rests = 0, percent = 0;
  for (const std::string& entry : entries) {
    shares.push_back(parse(entry));
    const SmShare& share = shares.back();
    if (share.unit == SmShare::Unit::Rest && ++rests > 1)
      throw InvalidArgument("streams.partition '" + entry + "': another entry has the rest already");
    if (share.unit == SmShare::Unit::Percent) {
      if (share.amount > 100 - percent)
        throw InvalidArgument(
            fmt::format("streams.partition '{}': the parts are more than 100 % of a device", entry));
      percent += share.amount;
    }
  }
  return shares;
}

std::vector<int> share_out(const std::vector<SmShare>& shares, const SmUnits& units) {
  std::vector<int> given;
  int used = 0, rest = -1;
  for (const SmShare& share : shares) {
    int own = 0;
    switch (share.unit) {
      case SmShare::Unit::Count:
        own = rounded_up(share.amount, units.size);
        break;
      case SmShare::Unit::Percent:
        own = rounded_up(rounded_up(share.amount * units.all(), 100), units.size);
        break;
      case SmShare::Unit::Rest:
        rest = static_cast<int>(given.size());
        break;
    }
    if (own > units.count - used)
      throw InvalidArgument(fmt::format(
          "streams.partition '{}': of the device's {} multiprocessors {} are left, in shares of {} each",
          share.text, units.all(), (units.count - used) * units.size, units.size));
    used += own;
    given.push_back(own);
  }
  if (rest < 0) return given;
  const int left = units.count - used;
  if (left == 0 && units.beyond == 0)
    throw InvalidArgument(fmt::format("streams.partition '{}': the others leave none of the {}",
                                      shares[static_cast<std::size_t>(rest)].text, units.all()));
  given[static_cast<std::size_t>(rest)] = left;
  return given;
}

struct SmShareNames::Patterns {
  std::vector<std::unique_ptr<RE2>> all;
};

SmShareNames::SmShareNames(const std::vector<SmShare>& shares) : patterns_(std::make_unique<Patterns>()) {
  for (const SmShare& share : shares) patterns_->all.push_back(compiled(share.match));
}

SmShareNames::~SmShareNames() = default;

int SmShareNames::share_of(const std::string& stream) const {
  for (std::size_t i = 0; i < patterns_->all.size(); ++i)
    if (RE2::FullMatch(stream, *patterns_->all[i])) return static_cast<int>(i);
  return -1;
}

std::string shares_text(const std::vector<SmShare>& shares, std::span<const std::string> streams) {
  const SmShareNames names(shares);
  std::string text;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const SmShare& share = shares[i];
    text += fmt::format("multiprocessors: {}:", share.unit == SmShare::Unit::Rest ? "the rest"
                                                : share.unit == SmShare::Unit::Percent
                                                    ? fmt::format("{} %", share.amount)
                                                    : std::to_string(share.amount));
    if (share.match.empty()) text += " set aside";
    bool fits = share.match.empty();
    for (const std::string& stream : streams)
      if (names.share_of(stream) == static_cast<int>(i)) {
        text += " " + stream;
        fits = true;
      }
    text += fits ? "\n" : fmt::format(" no stream of this step fits '{}'\n", share.match);
  }
  return text;
}

}  // namespace braid
