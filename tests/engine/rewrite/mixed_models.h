// Models for the tests of mixed precision, and how near their losses and gradients are to those of float32.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/compile/compile.h"
#include "engine/device/accelerator.h"
#include "engine/ir/graph.h"
#include "engine/program/options.h"

namespace braid::testing {

struct MixedModel {
  Graph graph;
  CompileRequest request;  // fetches the loss, then gradients; of random models the outputs of rows last
  std::vector<Tensor> feeds;
  int gradients = 0;
};

/// A model of the zoo, small, as jobs train it.
MixedModel zoo_model(const std::string& name);
/// A graph that nobody tuned for: layers of odd widths with activations of all kinds, layer norms, softmax,
/// gathered and pooled rows, einsums, batches of products, attention, convolutions, gates, joins and slices,
/// in a random order. Rows do not depend on each other until the loss. The same seed gives the same model.
MixedModel random_model(std::uint64_t seed);

CompileOptions precision_options(DType half, Domain domain = Domain::Host, bool fusion = false);

/// One program with its variables as a job begins, and `steps` steps of the same feeds; what each fetched.
std::vector<std::vector<Tensor>> run_steps(const MixedModel& model, const CompileOptions& options, int steps,
                                           const std::shared_ptr<Accelerator>& device,
                                           float learning_rate = 0);
/// What the last one of them fetched.
std::vector<Tensor> run_model(const MixedModel& model, const CompileOptions& options, int steps = 1,
                              const std::shared_ptr<Accelerator>& device = nullptr);

double norm(const Tensor& tensor);
/// |a - b|
double distance(const Tensor& a, const Tensor& b);

/// How far values are from those of float32. Gradients may be sums that cancel (that of a key's bias in front
/// of a softmax is nothing but rounding), so each is measured by its norm and a hundredth of that of all.
struct Apart {
  double loss = 0, gradient = 0, rows = 0;
  std::string worst;  // the gradient that is farthest
};
Apart apart(const MixedModel& model, const std::vector<Tensor>& got, const std::vector<Tensor>& expected);

}  // namespace braid::testing
