#include "worker/strategies/table_costs.h"

#include <algorithm>
#include <array>

#include "engine/program/cost_model.h"

namespace braid::worker {
namespace {

/// From data sheets.
struct Card {
  const char* name;
  double bytes, memory_bytes_per_us, link_bytes_per_us, cache_bytes, tf32_per_us, half_per_us;
};

constexpr std::array kCards{Card{"A100", 80e9, 2.0e6, 300e3, 40e6, 156e6, 312e6},
                            Card{"H100", 80e9, 3.35e6, 450e3, 50e6, 495e6, 989e6},
                            Card{"H200", 141e9, 4.8e6, 450e3, 50e6, 495e6, 989e6},
                            Card{"B200", 180e9, 8.0e6, 900e3, 126e6, 1125e6, 2250e6},
                            Card{"B300", 270e9, 8.0e6, 900e3, 126e6, 1125e6, 2250e6}};

// What is left of the sheet. Links: 282 of 450 GB/s were measured for an all-to-all of 256 MiB between two
// H200, which took 15 us at 1 MiB (docs/design/performance.md). Memory and products: as the layers of
// MLPerf's DLRM-v2 reached on one, on four streams. Cache: assumed.
constexpr double kShareOfMemory = 0.92, kShareOfLink = 0.63, kShareOfProducts = 0.65, kShareOfHalves = 0.68,
                 kCacheGain = 2.5;
constexpr double kDeviceExchangeUs = 15;
constexpr double kNicBytesPerUs = 40e3;  // 0.8 of 400 Gbit/s a card; not measured
constexpr int kCardsPerHost = 8;
constexpr double kListUsPerId = 0.02;

StepCosts costs_of(const Card& card) {
  return {.card = card.name,
          .source = std::string("data sheet of an ") + card.name +
                    ": links by what two H200 reached, memory and products by what one reached",
          .workers_per_host = kCardsPerHost,
          .exchange_us = kDeviceExchangeUs,
          .link_bytes_per_us = kShareOfLink * card.link_bytes_per_us,
          .host_link_bytes_per_us = kNicBytesPerUs,
          .memory_bytes_per_us = kShareOfMemory * card.memory_bytes_per_us,
          .cache_bytes_per_us = kCacheGain * kShareOfMemory * card.memory_bytes_per_us,
          .cache_bytes = card.cache_bytes,
          .card_bytes = card.bytes,
          .granule_bytes = 64,
          .kernel_us = kDeviceCosts.kernel_us,
          .list_us_per_id = kListUsPerId,
          .flops_per_us = kShareOfProducts * card.tf32_per_us,
          .half_flops_per_us = kShareOfHalves * card.half_per_us};
}

/// One core, and the network of the engine's cost model.
StepCosts costs_of_hosts() {
  return {.card = "CPU",
          .source = "the engine's cost model of one core and a datacentre network",
          .workers_per_host = 1,
          .exchange_us = kHostCosts.network_us,
          .link_bytes_per_us = kHostCosts.network_bytes_per_us,
          .host_link_bytes_per_us = kHostCosts.network_bytes_per_us,
          .memory_bytes_per_us = kHostCosts.bytes_per_us / 2,
          .cache_bytes_per_us = kHostCosts.bytes_per_us,
          .cache_bytes = 1e6,
          .granule_bytes = 64,
          .kernel_us = kHostCosts.kernel_us,
          .list_us_per_id = kListUsPerId,
          .flops_per_us = kHostCosts.flops_per_us,
          .half_flops_per_us = kHostCosts.flops_per_us};
}

}  // namespace

std::int64_t memory_for_tables(const StepCosts& costs) {
  return static_cast<std::int64_t>(0.75 * costs.card_bytes);
}

std::vector<std::string> known_cards() {
  std::vector<std::string> names{"CPU"};
  for (const Card& card : kCards) names.emplace_back(card.name);
  return names;
}

StepCosts card_costs(std::string_view description) {
  if (description.empty() || description == "CPU") return costs_of_hosts();
  for (const Card& card : kCards)
    if (description.find(card.name) != std::string_view::npos) return costs_of(card);
  StepCosts costs = card_costs("H100");
  costs.card = description;
  costs.source = "those of an H100, for lack of others";
  return costs;
}

double exchange_us(const StepCosts& costs, int world, double bytes) {
  if (world < 2 || bytes <= 0) return 0;
  const double near = std::min(costs.workers_per_host, world) - 1, others = world - 1;
  return costs.exchange_us + std::max(bytes * near / others / costs.link_bytes_per_us,
                                      bytes * (others - near) / others / costs.host_link_bytes_per_us);
}

double all_reduce_us(const StepCosts& costs, int world, double bytes) {
  if (world < 2 || bytes <= 0) return 0;
  const double slowest = world > costs.workers_per_host
                             ? std::min(costs.link_bytes_per_us,
                                        costs.host_link_bytes_per_us * std::max(costs.workers_per_host, 1))
                             : costs.link_bytes_per_us;
  return costs.exchange_us + 2 * bytes * (world - 1) / world / slowest;
}

}  // namespace braid::worker
