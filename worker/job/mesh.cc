#include "worker/job/mesh.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/error.h"
#include "proto/job.pb.h"

namespace braid::worker {

std::vector<int> Mesh::group_ranks(int rank) const {
  std::vector<int> ranks;
  for (int place = 0; place < workers; ++place) ranks.push_back(group_of(rank) * workers + place);
  return ranks;
}

std::vector<int> Mesh::data_ranks(int rank) const {
  std::vector<int> ranks;
  for (int group = 0; group < data; ++group) ranks.push_back(group * workers + place_of(rank));
  return ranks;
}

namespace {

bool is_of_experts(const proto::Job& job) { return job.strategy().kind() == proto::Strategy::EXPERTS; }

/// The field of strategy.mesh that says how many workers a group has, and its value; nothing: no mesh.
std::optional<std::pair<const char*, int>> workers_of_group(const proto::Job& job) {
  const proto::Mesh& said = job.strategy().mesh();
  switch (job.strategy().kind()) {
    case proto::Strategy::TENSOR:
      return std::pair("tensor", static_cast<int>(said.tensor()));
    case proto::Strategy::EXPERTS:
      return std::pair("experts", static_cast<int>(said.experts()));
    case proto::Strategy::PIPELINE:
      return std::pair("pipeline", static_cast<int>(said.pipeline()));
    default:
      return std::nullopt;
  }
}

}  // namespace

Mesh mesh_of(const proto::Job& job, int world) {
  const auto said = workers_of_group(job);
  if (!said) return {world, 1};
  const auto [field, workers] = *said;
  const auto data = static_cast<int>(job.strategy().mesh().data());
  Mesh mesh{data, workers};
  if (data == 0 && workers == 0)
    mesh = {1, world};
  else if (workers == 0)
    mesh.workers = world / data;
  else if (data == 0)
    mesh.data = world / workers;
  if (mesh.data * mesh.workers == world) return mesh;
  const auto text = [](const char* name, int value) {
    return value == 0 ? std::string() : fmt::format(" {}: {}", name, value);
  };
  throw InvalidArgument(fmt::format("strategy.mesh {{{}{} }} is not of {} workers, which there are",
                                    text("data", data), text(field, workers), world));
}

std::string objection_to_mesh(const proto::Job& job) {
  const bool of_experts = is_of_experts(job);
  if (!of_experts && job.strategy().kind() != proto::Strategy::TENSOR) return {};
  const auto does_not_go_with = [&](const std::string& what) {
    return "strategy.kind " + proto::Strategy::Kind_Name(job.strategy().kind()) + " does not go with " + what;
  };
  for (int l = 0; l < job.strategy().tensor().layer_size(); ++l)
    if (!of_experts && job.strategy().tensor().layer(l).match().empty())
      return fmt::format("strategy.tensor.layer[{}].match is missing", l);
  if (job.optimizer().clip_worker_norm() > 0)
    return does_not_go_with(
        "optimizer.clip_worker_norm: no worker has all of a gradient; use optimizer.clip_norm");
  if (job.input().shard() != proto::Input::ALL)
    return does_not_go_with(of_experts ? "input.shard: steps of workers must have as many rows"
                                       : "input.shard: the workers of a group read the same rows");
  if (job.input().has_follow()) return does_not_go_with("input.follow: workers could disagree on the files");
  if (job.runtime().precision() == proto::Runtime::FP16)
    return does_not_go_with("runtime.precision FP16, whose loss scale looks at all gradients: use BF16");
  if (job.runtime().recompute().memory_bytes() > 0)
    return does_not_go_with(
        "runtime.recompute.memory_bytes, which is of a step that is not cut: use runtime.recompute.scope");
  if (job.staging().auto_stage()) return does_not_go_with("staging.auto_stage");
  if (job.model().graph().gradients() == proto::TrainedGraph::KEEP)
    return does_not_go_with(std::string("model.graph.gradients KEEP: ") +
                            (of_experts ? "where experts lie" : "which layers are cut") +
                            " is seen in gradients that Braid makes; use REDO");
  if (!job.checkpoint().directory().empty() && job.checkpoint().every_seconds() > 0)
    return does_not_go_with(
        "checkpoint.every_seconds: all workers send their slices for a checkpoint, after a step that all "
        "know; set checkpoint.every_steps");
  return {};
}

}  // namespace braid::worker
