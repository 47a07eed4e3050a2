#include "worker/job/mesh.h"

#include <fmt/format.h>

#include "base/error.h"
#include "proto/job.pb.h"

namespace braid::worker {

std::vector<int> Mesh::tensor_ranks(int rank) const {
  std::vector<int> ranks;
  for (int place = 0; place < tensor; ++place) ranks.push_back(group_of(rank) * tensor + place);
  return ranks;
}

std::vector<int> Mesh::data_ranks(int rank) const {
  std::vector<int> ranks;
  for (int group = 0; group < data; ++group) ranks.push_back(group * tensor + place_of(rank));
  return ranks;
}

namespace {

bool is_of_experts(const proto::Job& job) { return job.strategy().kind() == proto::Strategy::EXPERTS; }
bool has_mesh(const proto::Job& job) {
  return job.strategy().kind() == proto::Strategy::TENSOR || is_of_experts(job);
}

}  // namespace

Mesh mesh_of(const proto::Job& job, int world) {
  if (!has_mesh(job)) return {world, 1};
  const bool of_experts = is_of_experts(job);
  const proto::Mesh& said = job.strategy().mesh();
  const auto data = static_cast<int>(said.data());
  const auto tensor = static_cast<int>(of_experts ? said.experts() : said.tensor());
  Mesh mesh{data, tensor};
  if (data == 0 && tensor == 0)
    mesh = {1, world};
  else if (tensor == 0)
    mesh.tensor = world / data;
  else if (data == 0)
    mesh.data = world / tensor;
  if (mesh.data * mesh.tensor == world) return mesh;
  const auto text = [](const char* field, int workers) {
    return workers == 0 ? std::string() : fmt::format(" {}: {}", field, workers);
  };
  throw InvalidArgument(fmt::format("strategy.mesh {{{}{} }} is not of {} workers, which there are",
                                    text("data", data), text(of_experts ? "experts" : "tensor", tensor),
                                    world));
}

std::string objection_to_mesh(const proto::Job& job) {
  if (!has_mesh(job)) return {};
  const bool of_experts = is_of_experts(job);
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
