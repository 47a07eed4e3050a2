#include "base/metrics.h"

#include <fmt/format.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>
#include <sstream>

#include "base/error.h"

namespace braid {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricType;

class AtomicCounter final : public Counter {
 public:
  void add(double amount) override {
    if (!(amount >= 0)) throw InvalidArgument(fmt::format("[metrics] a counter cannot go up by {}", amount));
    value_.fetch_add(amount, std::memory_order_relaxed);
  }
  double value() const override { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

class AtomicGauge final : public Gauge {
 public:
  void set(double value) override { value_.store(value, std::memory_order_relaxed); }
  double value() const override { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

class AtomicHistogram final : public Histogram {
 public:
  explicit AtomicHistogram(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

  void observe(double value) override {
    const auto cell =
        std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();  // value <= bound
    counts_[static_cast<std::size_t>(cell)].fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(value, std::memory_order_relaxed);
  }

  ClientMetric::Histogram collect() const {
    ClientMetric::Histogram out;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      out.sample_count += counts_[i].load(std::memory_order_relaxed);
      const double bound = i < bounds_.size() ? bounds_[i] : std::numeric_limits<double>::infinity();
      out.bucket.push_back({out.sample_count, bound});
    }
    out.sample_sum = sum_.load(std::memory_order_relaxed);
    return out;
  }

 private:
  const std::vector<double> bounds_;
  std::vector<std::atomic<std::uint64_t>> counts_;
  std::atomic<double> sum_{0};
};

bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool digit(char c) { return c >= '0' && c <= '9'; }

// Names as in Prometheus' data model: metrics [a-zA-Z_:][a-zA-Z0-9_:]*, labels the same without ':'.
bool good_metric_name(const std::string& name) {
  return !name.empty() && !digit(name[0]) &&
         std::all_of(name.begin(), name.end(), [](char c) { return letter(c) || digit(c) || c == ':'; });
}

bool good_label_name(const std::string& name) {
  return !name.empty() && !digit(name[0]) && !name.starts_with("__") &&
         std::all_of(name.begin(), name.end(), [](char c) { return letter(c) || digit(c); });
}

void check_names(const std::string& name, const MetricLabels& labels, bool histogram) {
  if (!good_metric_name(name)) throw InvalidArgument(fmt::format("[metrics] bad metric name '{}'", name));
  for (const auto& [label, value] : labels)
    if (!good_label_name(label) || (histogram && label == "le"))
      throw InvalidArgument(fmt::format("[metrics] '{}': bad label name '{}'", name, label));
}

void check_bounds(const std::string& name, const std::vector<double>& bounds) {
  const bool rising =
      std::adjacent_find(bounds.begin(), bounds.end(), std::greater_equal<>()) == bounds.end();
  if (!rising || !std::all_of(bounds.begin(), bounds.end(), [](double b) { return std::isfinite(b); }))
    throw InvalidArgument(fmt::format("[metrics] '{}': histogram bounds must be finite and rise", name));
}

/// All metrics of one name.
struct Family {
  MetricType type;
  std::string help;
  std::vector<double> bounds;  // histograms
  std::map<MetricLabels, std::unique_ptr<AtomicCounter>> counters;
  std::map<MetricLabels, std::unique_ptr<AtomicGauge>> gauges;
  std::map<MetricLabels, std::unique_ptr<AtomicHistogram>> histograms;
};

template <class Metric, class Fill>
void collect(const std::map<MetricLabels, std::unique_ptr<Metric>>& metrics, prometheus::MetricFamily& family,
             Fill fill) {
  for (const auto& [labels, metric] : metrics) {
    ClientMetric out;
    for (const auto& [name, value] : labels) out.label.push_back({name, value});
    fill(*metric, out);
    family.metric.push_back(std::move(out));
  }
}

}  // namespace

struct MetricsRegistry::Impl {
  mutable std::mutex mutex;
  std::map<std::string, Family> families;  // guarded by mutex; the metrics themselves are not

  std::mutex updates_mutex;  // separate, since an update may look metrics up
  std::vector<std::function<void()>> updates;

  Family& family(const std::string& name, const std::string& help, const MetricLabels& labels,
                 MetricType type, const std::vector<double>& bounds = {});
};

/// REQUIRES: mutex is held.
Family& MetricsRegistry::Impl::family(const std::string& name, const std::string& help,
                                      const MetricLabels& labels, MetricType type,
                                      const std::vector<double>& bounds) {
  check_names(name, labels, type == MetricType::Histogram);
  check_bounds(name, bounds);
  const auto [at, added] = families.try_emplace(name, Family{type, help, bounds, {}, {}, {}});
  if (at->second.type != type)
    throw InvalidArgument(fmt::format("[metrics] '{}' is in use with another kind", name));
  if (at->second.bounds != bounds)
    throw InvalidArgument(fmt::format("[metrics] '{}' is in use with other histogram bounds", name));
  return at->second;
}

MetricsRegistry::MetricsRegistry() : impl_(std::make_unique<Impl>()) {}
MetricsRegistry::~MetricsRegistry() = default;

Counter& MetricsRegistry::counter(const std::string& name, const std::string& help,
                                  const MetricLabels& labels) {
  std::lock_guard lock(impl_->mutex);
  auto& metric = impl_->family(name, help, labels, MetricType::Counter).counters[labels];
  if (!metric) metric = std::make_unique<AtomicCounter>();
  return *metric;
}

Gauge& MetricsRegistry::gauge(const std::string& name, const std::string& help, const MetricLabels& labels) {
  std::lock_guard lock(impl_->mutex);
  auto& metric = impl_->family(name, help, labels, MetricType::Gauge).gauges[labels];
  if (!metric) metric = std::make_unique<AtomicGauge>();
  return *metric;
}

Histogram& MetricsRegistry::histogram(const std::string& name, const std::string& help,
                                      const std::vector<double>& bounds, const MetricLabels& labels) {
  std::lock_guard lock(impl_->mutex);
  auto& metric = impl_->family(name, help, labels, MetricType::Histogram, bounds).histograms[labels];
  if (!metric) metric = std::make_unique<AtomicHistogram>(bounds);
  return *metric;
}

void MetricsRegistry::on_collect(std::function<void()> update) {
  std::lock_guard lock(impl_->updates_mutex);
  impl_->updates.push_back(std::move(update));
}

std::string MetricsRegistry::render() const {
  {
    std::lock_guard lock(impl_->updates_mutex);
    for (const auto& update : impl_->updates) update();
  }
  std::vector<prometheus::MetricFamily> families;
  {
    std::lock_guard lock(impl_->mutex);
    for (const auto& [name, family] : impl_->families) {
      prometheus::MetricFamily& out = families.emplace_back();
      out.name = name;
      out.help = family.help;
      out.type = family.type;
      collect(family.counters, out,
              [](const AtomicCounter& from, ClientMetric& to) { to.counter.value = from.value(); });
      collect(family.gauges, out,
              [](const AtomicGauge& from, ClientMetric& to) { to.gauge.value = from.value(); });
      collect(family.histograms, out,
              [](const AtomicHistogram& from, ClientMetric& to) { to.histogram = from.collect(); });
    }
  }
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, families);
  return text.str();
}

}  // namespace braid
