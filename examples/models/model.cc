#include "examples/models/model.h"

#include <array>

#include "base/error.h"

namespace braid {
namespace {

struct Row {
  std::string_view name;
  ModelGraph (*build)(const ModelConfig&);
};

constexpr std::array kModels = {
    Row{"cnn", build_cnn},
    Row{"dcn_v2", build_dcn_v2},
    Row{"deepfm", build_deepfm},
    Row{"din", build_din},
    Row{"dlrm", build_dlrm},
    Row{"linear_regression", build_linear_regression},
    Row{"mlp", build_mlp},
    Row{"mmoe", build_mmoe},
    Row{"resnet18", build_resnet18},
    Row{"transformer", build_transformer},
    Row{"wide_deep", build_wide_deep},
};

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Row& row : kModels) names.emplace_back(row.name);
  return names;
}

ModelGraph build_model(const std::string& name, const ModelConfig& config) {
  for (const Row& row : kModels)
    if (row.name == name) return row.build(config);
  std::string known;
  for (const Row& row : kModels) known += (known.empty() ? "" : ", ") + std::string(row.name);
  throw InvalidArgument("there is no model '" + name + "'; the models are: " + known);
}

}  // namespace braid
