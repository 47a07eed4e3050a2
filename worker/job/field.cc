// What a line of the table of fields is made of.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <utility>

#include "worker/job/fields.h"

namespace braid::worker {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();
/// Far below what clocks count, and for a deadline far above the beat by which servers know who is alive.
constexpr double kMostSeconds = 1e7;

}  // namespace

bool Range::contains(double value) const {
  if (std::isnan(value) || (std::isinf(most) && std::isinf(value))) return false;
  const bool is_above = least_is_out ? value > least : value >= least;
  return is_above && (most_is_out ? value < most : value <= most);
}

Range not_negative() { return {0, kNoLimit, false, false, "must not be negative"}; }
Range positive() { return {0, kNoLimit, true, false, "must be positive"}; }
Range negative() { return {std::numeric_limits<float>::lowest(), 0, false, true, "must be negative"}; }
Range share() { return {0, 1, false, true, "must be in [0, 1)"}; }
Range from_to(double least, double most) {
  return {least, most, false, false, fmt::format("must be from {} to {:.0f}", least, most)};
}
Range at_least(double least) {
  return {least, kNoLimit, false, false, fmt::format("must be at least {}", least)};
}
Range at_most(double most) { return {0, most, false, false, fmt::format("must be at most {}", most)}; }
Range seconds(double least) { return from_to(least, kMostSeconds); }

JobField&& JobField::by_default(bool value) && {
  default_ = {Default::Kind::Switch, value, 0, value ? "true" : "false", {}};
  return std::move(*this);
}
JobField&& JobField::by_default(double value) && {
  return std::move(*this).by_default(value, fmt::format("{}", value));
}
JobField&& JobField::by_default(int value) && {
  return std::move(*this).by_default(static_cast<double>(value), fmt::format("{}", value));
}
JobField&& JobField::by_default(const char* name) && {
  default_ = {Default::Kind::Name, false, 0, name, {}};
  return std::move(*this);
}
JobField&& JobField::by_default(double value, std::string text) && {
  default_ = {Default::Kind::Number, false, value, std::move(text), {}};
  return std::move(*this);
}
JobField&& JobField::by_default(std::string text, std::function<void(proto::Job&)> set) && {
  default_ = {Default::Kind::Derived, false, 0, std::move(text), std::move(set)};
  return std::move(*this);
}
JobField&& JobField::default_elsewhere(std::string text) && {
  default_ = {Default::Kind::Elsewhere, false, 0, std::move(text), {}};
  return std::move(*this);
}
JobField&& JobField::in(Range range) && {
  range_ = std::move(range);
  return std::move(*this);
}
JobField&& JobField::needed() && {
  needed_ = true;
  return std::move(*this);
}
JobField&& JobField::needed_for(Reason reason) && {
  needed_for_ = std::move(reason);
  return std::move(*this);
}
JobField&& JobField::idle(Reason reason) && {
  idle_.push_back(std::move(reason));
  return std::move(*this);
}
JobField&& JobField::idle_on_host() && {
  host_ = HostRule{};
  return std::move(*this);
}
JobField&& JobField::idle_on_host_in_training(Reason also) && {
  host_ = HostRule{true, std::move(also)};
  return std::move(*this);
}
JobField&& JobField::was_not(std::string old_name) && {
  old_name_ = std::move(old_name);
  return std::move(*this);
}
JobField&& JobField::tf(std::string name) && {
  tf_.push_back(std::move(name));
  return std::move(*this);
}

}  // namespace braid::worker
