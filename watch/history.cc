#include "watch/history.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace braid::watch {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kMostMetrics = 64;

/// Leaves out every second one.
template <class T>
void thin_out(std::vector<T>& points) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < points.size(); i += 2) points[kept++] = points[i];
  points.resize(kept);
}

double input_share(const Status& status) {
  double most = 0;
  for (const Stream& stream : status.streams)
    if (stream.cause == "compute")
      if (const auto at = stream.wait.find("input"); at != stream.wait.end())
        most = std::max(most, at->second);
  return most;
}

nlohmann::json number_or_null(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json();
}

}  // namespace

void History::add(const Status& s) {
  std::lock_guard lock(mu_);
  for (const auto& [name, value] : s.metrics) {
    auto at =
        std::find_if(metrics_.begin(), metrics_.end(), [&](const Measured& m) { return m.metric == name; });
    if (at == metrics_.end()) {
      if (metrics_.size() == kMostMetrics) continue;
      at = metrics_.insert(metrics_.end(), {name, {}});
    }
    const auto step = static_cast<double>(s.metrics_step);
    if (at->values.empty() || at->values.back().first != step) at->values.emplace_back(step, value);
    if (at->values.size() > most_) thin_out(at->values);
  }
  if (!s.trains || s.steps_total == 0 || ++skipped_ < every_) return;
  skipped_ = 0;
  points_.push_back({s.time, static_cast<double>(s.step), s.loss.value_or(kNone), s.examples_per_second,
                     s.learning_rate.value_or(kNone), s.compute_busy, input_share(s)});
  if (points_.size() < most_) return;
  thin_out(points_);
  every_ *= 2;
}

std::string History::to_json() const {
  nlohmann::json out;
  std::lock_guard lock(mu_);
  const auto column = [&](const char* name, double Point::*member) {
    nlohmann::json values = nlohmann::json::array();
    for (const Point& point : points_) values.push_back(number_or_null(point.*member));
    out[name] = std::move(values);
  };
  column("time", &Point::time);
  column("step", &Point::step);
  column("loss", &Point::loss);
  column("examples_per_second", &Point::rate);
  column("learning_rate", &Point::learning_rate);
  column("busy", &Point::busy);
  column("input", &Point::input);
  out["metrics"] = nlohmann::json::object();
  for (const Measured& each : metrics_) {
    nlohmann::json values = nlohmann::json::array();
    for (const auto& [step, value] : each.values) values.push_back({step, number_or_null(value)});
    out["metrics"][each.metric] = std::move(values);
  }
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace braid::watch
