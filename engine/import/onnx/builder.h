// Makes the TensorFlow nodes that ONNX nodes become. Beside the GraphDef that it writes it keeps a Graph of
// the same nodes, so types, shapes and values that are known of any value are at hand while nodes are
// translated. A `Val` is one output of a node; the operators and functions on it add nodes, so that a
// translation reads as its formula. Names: nodes made for an ONNX value are "<value>/<Op>", and the one that
// computes it has the value's own name. Thread rule: one thread. All functions throw InvalidArgument where an
// op refuses its inputs.
#pragma once

#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/ir/graph.h"
#include "proto/graph.pb.h"

namespace braid::onnx {

class Builder;

/// Reading an empty Val, one that a translation was not given or has not made, throws InvalidArgument, as
/// everything else about a model that does not fit together.
struct Val {
  Builder* builder = nullptr;
  int node = -1;
  int output = 0;

  explicit operator bool() const { return builder != nullptr; }
  /// Throws: InvalidArgument when it is empty.
  Builder& made_by() const;
  DType dtype() const;
  const Shape& shape() const;
  /// Throws: InvalidArgument when it is not known.
  int rank() const;
  /// The size along an axis, which may be negative (from the end); Shape::kUnknown where it is not known.
  /// Throws: InvalidArgument for an axis that is not there, and a size that no machine holds, so that sums of
  /// sizes fit.
  std::int64_t dim(int axis) const;
  /// As dim. Throws: InvalidArgument when it is not known.
  std::int64_t static_dim(int axis) const;
  /// Of a list with an element an axis: its length. Throws: InvalidArgument when it is not known, or more
  /// than any tensor has axes.
  int list_length() const;
  /// Null where it is not known.
  const Tensor* known() const;
  /// Output k of the same node.
  Val at(int k) const { return {builder, node, k}; }
};

/// Numbers of a model: an attribute, sizes, axes. How many there are is the model's word, so reading one that
/// is not there throws InvalidArgument.
class Ints : public std::vector<std::int64_t> {
 public:
  using vector = std::vector<std::int64_t>;
  using vector::vector;
  Ints() = default;
  Ints(vector values) : vector(std::move(values)) {}  // NOLINT: implicit by design

  std::int64_t& operator[](std::size_t i) { return vector::operator[](checked(i)); }
  std::int64_t operator[](std::size_t i) const { return vector::operator[](checked(i)); }
  std::int64_t& at(std::size_t i) { return (*this)[i]; }
  std::int64_t at(std::size_t i) const { return (*this)[i]; }
  std::int64_t& front() { return (*this)[0]; }
  std::int64_t front() const { return (*this)[0]; }
  std::int64_t& back() { return (*this)[size() - 1]; }
  std::int64_t back() const { return (*this)[size() - 1]; }

 private:
  std::size_t checked(std::size_t i) const {
    if (i >= size()) fail(i);
    return i;
  }
  [[noreturn]] void fail(std::size_t i) const;
};

/// Sums and products of sizes and attributes. Throws: InvalidArgument when they do not fit into 63 bits.
std::int64_t checked_plus(std::int64_t a, std::int64_t b);
std::int64_t checked_minus(std::int64_t a, std::int64_t b);
std::int64_t checked_times(std::int64_t a, std::int64_t b);

class Builder {
 public:
  /// Names that no node made on the way may take: those of the model's values.
  /// `may_own`: nodes that only Braid knows may be made.
  explicit Builder(std::set<std::string> reserved, bool may_own = true)
      : taken_(std::move(reserved)), may_own_(may_own) {}

  bool may_own() const { return may_own_; }
  /// What a value is the BroadcastTo of; empty where it is something else.
  Val broadcast_source(Val value) const;
  /// What the node of a value reads, if it is of that op; else nothing.
  std::vector<Val> inputs_of(Val value, std::string_view op) const;

  Val op(const char* op, const std::vector<Val>& inputs, AttrMap attrs = {});
  Val constant(const Tensor& value);
  Val ints(const Ints& values, DType dtype = DType::Int64);  // a vector
  Val number(double value, DType dtype);                     // a scalar

  /// What nodes that are made from now on are named after.
  void set_scope(std::string scope);
  const std::string& scope() const { return scope_; }
  /// The node of `value`, if it was made in this scope and has no other name yet, gets that name; else an
  /// Identity.
  Val named(Val value, const std::string& name);

  /// Of a value, as inputs of a GraphDef's nodes name it: "node" or "node:1".
  std::string name_of(Val value) const;

  GraphDef finish() const;
  const Graph& graph() const { return graph_; }
  NodeId id(int node) const { return nodes_[static_cast<std::size_t>(node)].id; }

 private:
  struct Made {
    std::string name;
    std::string op;
    std::vector<Val> inputs;
    AttrMap attrs;
    NodeId id = kNoNode;
    bool is_final = false;  // has the name of a value
  };

  std::string free_name(const std::string& base);

  std::deque<Made> nodes_;
  Graph graph_;
  std::set<std::string> taken_;
  std::map<std::string, int> next_number_;  // by base of names: behind those that are taken
  std::string scope_;
  std::size_t scope_begin_ = 0;
  bool may_own_;
};

// ---------------------------------------------------------------------------------------------------
// formulas

Val tf(const char* op, const std::vector<Val>& inputs, AttrMap attrs = {});

Val like(double value, Val x);  // a scalar of x's type
Val ints(Val beside, const Ints& values, DType dtype = DType::Int64);
Val cast(Val x, DType dtype);  // x itself where it has the type

Val operator+(Val a, Val b);
Val operator-(Val a, Val b);
Val operator*(Val a, Val b);
/// Of floats exact, of integers towards zero.
Val operator/(Val a, Val b);
Val operator-(Val a);
Val operator+(Val a, double b);
Val operator-(Val a, double b);
Val operator*(Val a, double b);
Val operator/(Val a, double b);
Val operator+(double a, Val b);
Val operator-(double a, Val b);
Val operator*(double a, Val b);
Val operator/(double a, Val b);
Val maximum(Val a, Val b);
Val minimum(Val a, Val b);
Val where(Val condition, Val a, Val b);

Val reduce(const char* op, Val x, const Ints& axes, bool keep_dims = false);
Val reshape(Val x, const Ints& shape);
Val reshape(Val x, Val shape);
/// To sizes of which some are not known: the others stay known.
Val reshape(Val x, const std::vector<Val>& sizes);
Val transpose(Val x, const Ints& permutation);
/// The permutation that moves one axis elsewhere, in rank dimensions.
Ints moving(int rank, int from, int to);
Ints inverse(const Ints& permutation);
Val expand_dims(Val x, int axis);
Val squeeze(Val x, const Ints& axes);
Val shape_of(Val x);           // int64 [rank]
Val size_of(Val x, int axis);  // int64 scalar: a constant where it is known
Val concat(const std::vector<Val>& parts, int axis);
Val pack(const std::vector<Val>& parts, int axis);
Val gather(Val x, Val indices, int axis);
inline constexpr std::int64_t kToEnd = std::numeric_limits<std::int64_t>::max();  // an `end` of slice()
/// x[begin : end : step] along one axis, with TensorFlow's (and NumPy's) counting from the end; kToEnd, or
/// INT64_MIN where `step` is negative, stands for "to the end".
Val slice(Val x, int axis, std::int64_t begin, std::int64_t end, std::int64_t step = 1);
Val element(Val vector, int i);  // a scalar
Val range(Val count);            // int64 [count], from 0
Val broadcast_to(Val x, Val shape);
Val pad(Val x, const Ints& before, const Ints& after, Val value);
Val matmul(Val a, Val b);  // of the last two axes
std::vector<Val> split(Val x, int axis, const Ints& sizes);

/// The elements of a value that is known, else nothing.
std::optional<Ints> known_ints(Val x);
/// Throws: InvalidArgument naming `what` when it is not known.
Ints need_ints(Val x, const char* what);
/// The elements of a vector or scalar of integers, those that are known; nothing where not even their number
/// is.
using PartialInts = std::optional<std::vector<std::optional<std::int64_t>>>;
PartialInts partial_ints(Val x);
/// x, whose sizes are known to be these, but for negative ones.
Val refined(Val x, const Ints& sizes);
/// An axis in [-rank, rank) as [0, rank). Throws: InvalidArgument.
int positive_axis(std::int64_t axis, int rank);
/// What is unrolled into nodes. Throws: InvalidArgument when there are too many of it, naming `what`.
void check_unrolled(std::int64_t count, const char* what);
Ints all_axes(int rank, int first = 0);

}  // namespace braid::onnx
