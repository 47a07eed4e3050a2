// A binary with a model that the zoo does not have: two towers, one over the numbers of a row and one over
// its ids, whose vectors' product is the logit. All else is `braid`:
//
//   ./own_model train --job JOB --set model.name=two_towers
//
// Columns: "dense" [B, D] float, "sparse" [B, C] int64 and lists of any length, "label" [B] in {0, 1}.
#include "cli/run_main.h"
#include "models/common.h"
#include "models/id_columns.h"

namespace {

using namespace braid;

ModelGraph build_two_towers(const ModelConfig& config) {
  constexpr const char* kName = "two_towers";
  const std::vector<std::int64_t> hidden =
      config.hidden.empty() ? std::vector<std::int64_t>{64, 32} : config.hidden;
  const std::int64_t dim = config.embedding_dim ? config.embedding_dim : 16;
  const std::int64_t buckets = config.hash_buckets ? config.hash_buckets : 10000;
  GraphBuilder b;
  const Output dense = column_placeholder(b, config, kName, "dense", DType::Float32);
  const IdInputs sparse = id_inputs(b, config, kName, "sparse");
  const Output label = column_placeholder(b, config, kName, "label", DType::Float32);
  const RowWeights weights = row_weights(b, config);

  std::int64_t numbers = row_shape(config, kName, "dense")[0];
  const Output left = mlp_layers(b, "numbers", dense, numbers, hidden, config.dropout);
  const std::vector<IdColumn> columns = id_columns(b, config, kName, "sparse", sparse, buckets);
  const std::vector<Output> rows = column_embeddings(b, config, columns, dim, glorot_uniform);
  std::int64_t ids = width_of(columns, dim);
  const Output right = mlp_layers(b, "ids", b.concat(rows, 1), ids, hidden, config.dropout);

  const Output axis = b.constant(Tensor::from<std::int32_t>(Shape{1}, std::vector{1}), "axis");
  const Output logits = b.op("Sum", {b.mul(left, right), axis});
  return finish_model(b, mean_sigmoid_loss(b, logits, label, weights), logits,
                      sparse.read_between({"dense"}, {"label"}), "label", Prediction::Probability, weights);
}

}  // namespace

int main(int argc, char** argv) {
  braid::register_model("two_towers", build_two_towers, true);
  return braid::run_main(argc, argv);
}
