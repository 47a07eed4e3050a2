// Steps of HYBRID on random small models and tables, its ranks as threads over local communicators. Thread
// rule: one thread.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "proto/graph.pb.h"
#include "proto/job.pb.h"

namespace braid::worker {

inline constexpr std::int64_t kRowsOfRank = 5;
inline constexpr std::uint64_t kSteps = 4;

using Random = std::mt19937;
inline std::int64_t draw(Random& random, std::int64_t from, std::int64_t to) {
  return std::uniform_int_distribution<std::int64_t>(from, to)(random);
}

struct Lookup {
  std::string feed;
  std::int64_t rows = 0, length = 1;  // of the table; ids of an example
};

struct Model {
  GraphDef graph;
  std::string loss;
  std::vector<Lookup> lookups;
  std::vector<std::string> tables;
};

/// Ids of all examples of each step, by lookup.
using Batches = std::vector<std::vector<std::vector<std::int64_t>>>;

struct Outcome {
  std::vector<float> losses;
  std::vector<std::vector<float>> tables;
  bool sums_densely = false;  // of some replicated table
  bool sums_hot_densely = false;
  std::int64_t hot_rows = 0;               // of all tables
  bool sends_ahead = false;                // ids of the next step
  int taken_apart = 0;                     // exchanges that are two nodes
  int sends_halves = 0, sends_floats = 0;  // tensors of 16 and 32 bits, of tables whose ids all travel
  bool sends_distinct = false;             // rows of whole tables, each once
  std::uint64_t collectives = 0;           // collectives_hash() of its program
};

/// Tables of one to three columns, of which some share one and some are pooled, under a layer; loss = mean of
/// squares.
Model random_model(Random& random, std::int64_t world);
/// The same of tables that one column each pools by sums.
Model random_sums(Random& random);
/// The same of tables that one gather reads each, some of them by the same ids.
Model random_gathers(Random& random);
Batches random_batches(Random& random, const Model& model, std::int64_t examples);

proto::Job job_of(const std::string& optimizer, const std::string& strategy, const std::string& plan);
/// A plan for all of them; `more`: fields of the same entry.
std::string all_tables(const std::string& plan, const std::string& more = {});

/// By one process, of the batches of `world` ranks.
Outcome run_alone(const Model& model, const proto::Job& job, int world, const Batches& batches,
                  Random& random);
/// `card`: whose costs plans are made by; empty: this host's. `as_devices`: ranks say that they exchange rows
/// as GPUs of one host do.
Outcome run_group(const Model& model, const proto::Job& job, int world, const Batches& batches,
                  Random& random, const std::string& card = {}, bool as_devices = false);

/// Equal where nothing is rounded in another order.
void expect_near(const Outcome& its, const Outcome& local, int world, const std::string& optimizer);

}  // namespace braid::worker
