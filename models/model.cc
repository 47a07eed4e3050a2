#include "models/model.h"

#include <array>
#include <functional>
#include <utility>

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
    Row{"dlrm_v2", build_dlrm_v2},
    Row{"hstu", build_hstu},
    Row{"linear_regression", build_linear_regression, false},
    Row{"mlp", build_mlp},
    Row{"mmoe", build_mmoe},
    Row{"resnet18", build_resnet18, false},
    Row{"transformer", build_transformer},
    Row{"wide_deep", build_wide_deep},
};

struct Registered {
  std::string name;
  std::function<ModelGraph(const ModelConfig&)> build;
  bool has_dropout;
};

std::vector<Registered>& registered() {
  static std::vector<Registered> models;
  return models;
}

template <class AnyRow>
ModelGraph build(const AnyRow& row, const ModelConfig& config) {
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
  for (const Registered& row : registered()) names.push_back(row.name);
  return names;
}

void register_model(const std::string& name, std::function<ModelGraph(const ModelConfig&)> build,
                    bool has_dropout) {
  if (name.empty() || !build) throw InvalidArgument("register_model needs a name and a function");
  for (const std::string& taken : model_names())
    if (taken == name) throw InvalidArgument("there is a model '" + name + "' already; choose another name");
  registered().push_back({name, std::move(build), has_dropout});
}

ModelGraph build_model(const std::string& name, const ModelConfig& config) {
  for (const Row& row : kModels)
    if (row.name == name) return build(row, config);
  for (const Registered& row : registered())
    if (row.name == name) return build(row, config);
  std::string known;
  for (const std::string& each : model_names()) known += (known.empty() ? "" : ", ") + each;
  throw InvalidArgument("there is no model '" + name + "'; the models are: " + known);
}

}  // namespace braid
