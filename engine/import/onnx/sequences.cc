// Sequences of tensors. They are lists that only exist while a model is translated: their lengths, and the
// positions at which they are read, must be known then. A sequence cannot be a model's input or output.
#include "base/error.h"
#include "engine/import/onnx/node.h"

namespace braid::onnx {
namespace {

/// A position of a sequence of that length, or, for an insertion, behind its end.
std::size_t position(OnnxNode& n, int input, std::size_t length, bool inserts = false) {
  const std::int64_t at = need_ints(n.in(input), "the position").at(0);
  const auto size = static_cast<std::int64_t>(length);
  if (at < -size || at >= size + (inserts ? 1 : 0))
    throw InvalidArgument("the position is outside the sequence");
  return static_cast<std::size_t>(at < 0 ? at + size : at);
}

void sequence_empty(OnnxNode& n) { n.out_sequence({}); }

void sequence_construct(OnnxNode& n) {
  Sequence all;
  for (int i = 0; i < n.inputs(); ++i) all.push_back(n.in(i));
  n.out_sequence(std::move(all));
}

void sequence_insert(OnnxNode& n) {
  Sequence all = n.sequence(0);
  const std::size_t at = n.has(2) ? position(n, 2, all.size(), true) : all.size();
  all.insert(all.begin() + static_cast<std::ptrdiff_t>(at), n.in(1));
  n.out_sequence(std::move(all));
}

void sequence_erase(OnnxNode& n) {
  Sequence all = n.sequence(0);
  if (all.empty()) throw InvalidArgument("the sequence is empty");
  const std::size_t at = n.has(1) ? position(n, 1, all.size()) : all.size() - 1;
  all.erase(all.begin() + static_cast<std::ptrdiff_t>(at));
  n.out_sequence(std::move(all));
}

void sequence_at(OnnxNode& n) {
  const Sequence& all = n.sequence(0);
  n.out(0, tf("Identity", {all[position(n, 1, all.size())]}));
}

void sequence_length(OnnxNode& n) {
  n.out(0, n.b.number(static_cast<double>(n.sequence(0).size()), DType::Int64));
}

void concat_from_sequence(OnnxNode& n) {
  const Sequence& all = n.sequence(0);
  if (all.empty()) throw InvalidArgument("the sequence is empty");
  const int axis = n.i32("axis", 0);
  if (n.i("new_axis", 0) == 0) return n.out(0, concat(all, axis));
  n.out(0, pack(all, axis));
}

void split_to_sequence(OnnxNode& n) {
  const Val x = n.in(0);
  const int axis = positive_axis(n.i("axis", 0), x.rank());
  const std::int64_t whole = x.static_dim(axis);
  const bool keeps = n.has(1) || n.i("keepdims", 1) != 0;
  Ints sizes;
  if (!n.has(1)) {
    check_unrolled(whole, "parts");
    sizes.assign(static_cast<std::size_t>(whole), 1);
  } else {
    sizes = need_ints(n.in(1), "split");
    if (n.in(1).rank() == 0) {
      const std::int64_t each = sizes.at(0);
      if (each < 1) throw InvalidArgument("split must be positive");
      check_unrolled(whole / each, "parts");
      sizes.assign(static_cast<std::size_t>(whole / each), each);
      if (whole % each != 0) sizes.push_back(whole % each);
    }
  }
  Sequence parts = split(x, axis, sizes);
  for (Val& part : parts)
    if (!keeps) part = squeeze(part, {axis});
  n.out_sequence(std::move(parts));
}

}  // namespace

void add_sequences(Translations& t) {
  t.add("SequenceEmpty", sequence_empty);
  t.add("SequenceConstruct", sequence_construct);
  t.add("SequenceInsert", sequence_insert);
  t.add("SequenceErase", sequence_erase);
  t.add("SequenceAt", sequence_at);
  t.add("SequenceLength", sequence_length);
  t.add("ConcatFromSequence", concat_from_sequence);
  t.add("SplitToSequence", split_to_sequence);
}

}  // namespace braid::onnx
