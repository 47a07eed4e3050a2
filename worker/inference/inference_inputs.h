// What requests are fed with: arrays from .npy files, cut into batches, or numbers drawn from a seed. Thread
// rule: pure functions, apart from reading the files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/ir/graph.h"

namespace braid::worker {

/// "name", "name=-1,13" (a shape, with the batch in the place of -1) or "name=file.npy".
struct InferenceInput {
  std::string name;
  std::optional<Shape> shape;
  std::string file;
};
/// Throws: InvalidArgument.
InferenceInput parse_inference_input(const std::string& text);

struct FeedOptions {
  std::int64_t batch = 1;     // stands for the unknown dimensions of placeholders
  std::int64_t max_id = 100;  // integers are drawn below it
  std::uint64_t seed = 1;
};

/// By request, then by input. Files give as many requests as their rows are batches; those with more than one
/// have to agree. Placeholders without a file are the same in every request. Throws: InvalidArgument.
std::vector<std::vector<Tensor>> make_feeds(const Graph& graph, const std::vector<InferenceInput>& inputs,
                                            const FeedOptions& options);

/// The placeholders that `outputs` need.
std::vector<InferenceInput> placeholders_of(const Graph& graph, const std::vector<std::string>& outputs);

}  // namespace braid::worker
