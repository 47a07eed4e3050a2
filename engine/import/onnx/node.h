// One node of an ONNX model as its translation sees it: inputs that are translated already, attributes with
// their defaults, the version of its operator set. Translations are functions, listed by operator name in
// tables, a file a family. Thread rule: one thread.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/import/onnx/builder.h"
#include "proto/onnx.pb.h"

namespace braid::onnx {

/// A sequence of tensors, which exists while a model is translated only.
using Sequence = std::vector<Val>;

/// What a body gets and gives.
struct BodyValue {
  Val tensor;
  std::optional<Sequence> sequence;
  explicit operator bool() const { return tensor || sequence; }
};

/// The condition, a bool scalar, under which a body counts that is computed in any case.
struct Taken {
  Val condition;
  bool when = true;
};

/// What a translation needs of the model around its node.
class Surroundings {
 public:
  virtual ~Surroundings() = default;
  /// The nodes of a body of If, Loop or Scan, with `arguments` for its inputs; gives its outputs, empty ones
  /// for those that cannot be translated, which have been reported then. Bodies see the values around them;
  /// with `taken` gradients reach these where the body counts, so that no NaN of one that does not comes out.
  virtual std::vector<BodyValue> translate_body(const GraphProto& body,
                                                const std::vector<BodyValue>& arguments,
                                                const Taken* taken = nullptr) = 0;
  /// Where the model is, for external data.
  virtual const std::filesystem::path& folder() const = 0;
  /// Told by a node of normalisation or dropout that is in training mode. Whether it is to compute as in
  /// inference.
  virtual bool found_training() = 0;
  /// Input `name` of such a node is a running statistic that a step makes `next` of, which is empty for
  /// inference. False where it is no initializer of the graph: nobody keeps it then.
  virtual bool keep_statistic(const std::string& name, Val next) = 0;
  /// The sequence of that ONNX name; null when there is none.
  virtual const Sequence* find_sequence(const std::string& name) const = 0;
};

class OnnxNode {
 public:
  OnnxNode(Builder& builder, const NodeProto& proto, int opset, std::vector<Val> inputs, Surroundings& around)
      : b(builder),
        opset(opset),
        around(around),
        proto_(proto),
        inputs_(std::move(inputs)),
        outputs_(static_cast<std::size_t>(proto.output_size())),
        sequences_(outputs_.size()) {}

  Builder& b;
  const int opset;
  Surroundings& around;

  int inputs() const { return static_cast<int>(inputs_.size()); }
  bool has(int i) const { return i < inputs() && inputs_[static_cast<std::size_t>(i)]; }
  /// Throws: InvalidArgument when it is left out.
  Val in(int i) const;
  /// The input, or a scalar of x's type.
  Val in_or(int i, double value, Val x) const { return has(i) ? in(i) : like(value, x); }

  int outputs() const { return proto_.output_size(); }
  bool wants(int i) const { return i < outputs() && !proto_.output(i).empty(); }
  /// Outputs that the node does not have are left out.
  void out(int i, Val value);
  /// Throws: InvalidArgument when the input is not a sequence whose length is known.
  const Sequence& sequence(int i) const;
  void out_sequence(Sequence sequence, int i = 0);
  /// An input or an output that is a tensor or a sequence.
  BodyValue in_any(int i) const;
  void out_any(int i, const BodyValue& value);
  BodyValue result(int i) const;

  bool has_attr(std::string_view name) const { return find(name) != nullptr; }
  std::int64_t i(std::string_view name, std::int64_t fallback) const;
  /// Throws: InvalidArgument when it does not fit.
  int i32(std::string_view name, int fallback) const;
  /// Throws: InvalidArgument when it is less than 1, or so large that products of two would not fit.
  std::int64_t positive(std::string_view name, std::int64_t fallback) const;
  double f(std::string_view name, double fallback) const;
  std::string s(std::string_view name, std::string fallback) const;
  Ints is(std::string_view name, Ints fallback = {}) const;
  std::vector<double> fs(std::string_view name) const;
  std::vector<std::string> ss(std::string_view name) const;
  Tensor tensor(std::string_view name) const;
  const GraphProto& body(std::string_view name) const;
  const NodeProto& proto() const { return proto_; }

 private:
  const AttributeProto* find(std::string_view name) const;

  const NodeProto& proto_;
  std::vector<Val> inputs_;
  std::vector<Val> outputs_;
  std::vector<std::optional<Sequence>> sequences_;
};

using Translate = void (*)(OnnxNode&);

/// Operators by "Name", or "domain:Name" outside ONNX's own domain.
class Translations {
 public:
  static const Translations& all();
  Translate find(const std::string& name) const;
  std::vector<std::string> names() const;  // sorted
  void add(const std::string& name, Translate translate) { by_name_.emplace(name, translate); }

 private:
  std::map<std::string, Translate> by_name_;
};

void add_elementwise(Translations& t);
void add_reductions(Translations& t);
void add_shapes(Translations& t);
void add_indexing(Translations& t);
void add_matrices(Translations& t);
void add_norms(Translations& t);
void add_convolutions(Translations& t);
void add_pooling(Translations& t);
void add_losses(Translations& t);
void add_quantized(Translations& t);
void add_recurrent(Translations& t);
void add_resize(Translations& t);
void add_bodies(Translations& t);
void add_sampling(Translations& t);
void add_signals(Translations& t);
void add_random(Translations& t);
void add_sequences(Translations& t);
void add_columns(Translations& t);
void add_detection(Translations& t);
void add_attention(Translations& t);

}  // namespace braid::onnx
