#include "models/model.h"

#include <array>

#include "base/error.h"
#include "proto/graph.pb.h"

namespace braid {
namespace {

struct Row {
  std::string_view name;
  ModelGraph (*build)(const ModelConfig&);
  bool has_dropout = true;
};

constexpr std::array kModels = {
    Row{"cnn", build_cnn},
    Row{"dcn_v2", build_dcn_v2},
    Row{"deepfm", build_deepfm},
    Row{"din", build_din},
    Row{"dlrm", build_dlrm},
    Row{"linear_regression", build_linear_regression, false},
    Row{"mlp", build_mlp},
    Row{"mmoe", build_mmoe},
    Row{"resnet18", build_resnet18, false},
    Row{"transformer", build_transformer},
    Row{"wide_deep", build_wide_deep},
};

ModelGraph build(const Row& row, const ModelConfig& config) {
  if (config.dropout == 0) return row.build(config);
  if (!row.has_dropout)
    throw InvalidArgument("model '" + std::string(row.name) + "' has no layer with dropout");
  ModelGraph model = row.build(config);
  ModelConfig predicting = config;
  predicting.dropout = 0;
  model.inference = std::move(row.build(predicting).graph);
  return model;
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Row& row : kModels) names.emplace_back(row.name);
  return names;
}

ModelGraph build_model(const std::string& name, const ModelConfig& config) {
  for (const Row& row : kModels)
    if (row.name == name) return build(row, config);
  std::string known;
  for (const Row& row : kModels) known += (known.empty() ? "" : ", ") + std::string(row.name);
  throw InvalidArgument("there is no model '" + name + "'; the models are: " + known);
}

}  // namespace braid
