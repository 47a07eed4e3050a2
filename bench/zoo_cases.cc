#include "bench/zoo_cases.h"

#include <map>
#include <utility>
#include <vector>

namespace braid::bench {

ZooCase zoo_case(const std::string& name) {
  const std::map<std::string, Shape> image{{"image", Shape{28, 28, 1}}, {"label", Shape{}}};
  const auto columns = [](std::int64_t dense, std::int64_t sparse) {
    return std::map<std::string, Shape>{
        {"dense", Shape{dense}}, {"sparse", Shape{sparse}}, {"label", Shape{}}};
  };
  const auto of = [](std::vector<std::int64_t> hidden, std::int64_t dim, std::int64_t buckets,
                     std::int64_t classes, std::map<std::string, Shape> shapes) {
    ModelConfig config;
    config.hidden = std::move(hidden);
    config.embedding_dim = dim;
    config.hash_buckets = buckets;
    config.classes = classes;
    config.sparse_tables = true;
    config.columns = std::move(shapes);
    return config;
  };
  if (name == "mlp") return {128, of({256, 128}, 0, 0, 10, image), OptimizerKind::Adam};
  if (name == "cnn") return {128, of({16, 32, 128}, 0, 0, 10, image), OptimizerKind::Adam};
  if (name == "resnet18") return {64, of({64, 128, 256, 512}, 0, 0, 10, image), OptimizerKind::Momentum};
  if (name == "wide_deep") return {256, of({64, 32}, 8, 1000, 0, columns(5, 8)), OptimizerKind::Adagrad};
  if (name == "dlrm") return {512, of({128, 64}, 16, 50000, 0, columns(13, 26)), OptimizerKind::Adagrad};
  if (name == "deepfm") return {512, of({128, 64}, 8, 50000, 0, columns(13, 26)), OptimizerKind::Adagrad};
  if (name == "dcn_v2") return {512, of({128, 64}, 8, 50000, 0, columns(13, 26)), OptimizerKind::Adagrad};
  if (name == "mmoe") {
    auto shapes = columns(3, 3);
    shapes["click"] = shapes["purchase"] = Shape{};
    ZooCase c{256, of({64, 32}, 8, 200, 0, shapes), OptimizerKind::Adagrad};
    c.config.experts = 4;
    c.config.tasks = {"click", "purchase"};
    return c;
  }
  if (name == "din") {
    auto shapes = columns(1, 1);
    shapes["history"] = Shape{12};
    shapes["item"] = Shape{1};
    return {256, of({64, 32}, 16, 500, 0, shapes), OptimizerKind::Adagrad};
  }
  if (name == "transformer")
    return {64, of({64, 64}, 32, 20, 4, {{"tokens", Shape{16}}, {"label", Shape{}}}), OptimizerKind::Adam};
  ZooCase own;
  own.config.classes = 10;
  own.batch = 256;
  return own;
}

}  // namespace braid::bench
