// The process's metrics: counters, gauges and histograms with labels, rendered in Prometheus' text format.
// Names are `braid_<what>_<unit>[_total]`, base units (seconds, bytes, ratios 0..1). Look a metric up once
// and keep the reference: updates are lock-free, look-ups are not. prometheus-cpp stays behind metrics.cc.
// Thread rule: everything here is safe from any thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace braid {

using MetricLabels = std::map<std::string, std::string>;

class Counter {
 public:
  virtual ~Counter() = default;
  virtual void add(double amount = 1.0) = 0;  // REQUIRES: amount >= 0
  virtual double value() const = 0;
};

class Gauge {
 public:
  virtual ~Gauge() = default;
  virtual void set(double value) = 0;
  virtual double value() const = 0;
};

class Histogram {
 public:
  virtual ~Histogram() = default;
  virtual void observe(double value) = 0;
};

class MetricsRegistry {
 public:
  MetricsRegistry();
  ~MetricsRegistry();
  MetricsRegistry(const MetricsRegistry&) = delete;
  MetricsRegistry& operator=(const MetricsRegistry&) = delete;

  /// The same (name, labels) gives the same object. References live as long as the registry.
  /// Throws: InvalidArgument for a bad name, or a name that is in use with another kind.
  Counter& counter(const std::string& name, const std::string& help, const MetricLabels& labels = {});
  Gauge& gauge(const std::string& name, const std::string& help, const MetricLabels& labels = {});
  Histogram& histogram(const std::string& name, const std::string& help, const std::vector<double>& bounds,
                       const MetricLabels& labels = {});

  /// Called at the beginning of each render(), to bring gauges and counters that are kept elsewhere up to
  /// date.
  void on_collect(std::function<void()> update);

  /// Content type "text/plain; version=0.0.4; charset=utf-8".
  std::string render() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid
