// NonMaxSuppression: boxes in the order of their scores, each of which stays unless one before it that stays
// overlaps it by more than the threshold. The walk over the boxes is unrolled, for all batches and classes at
// once.
#include <fmt/format.h>

#include "base/error.h"
#include "engine/import/onnx/node.h"

namespace braid::onnx {
namespace {

constexpr std::int64_t kMaxBoxes = 1024;

/// Corners [..., 1] of boxes [..., 4], the lower ones first.
struct Corners {
  Val y1, x1, y2, x2;
};

Corners corners(Val boxes, bool centered) {
  const int last = boxes.rank() - 1;
  const auto part = [&](int i) { return slice(boxes, last, i, i + 1); };
  const Val a = part(0), b = part(1), c = part(2), d = part(3);
  if (centered) return {b - d / 2.0, a - c / 2.0, b + d / 2.0, a + c / 2.0};  // x, y, width, height
  return {minimum(a, c), minimum(b, d), maximum(a, c), maximum(b, d)};
}

/// Intersection over union of all pairs, [..., n, n].
Val overlaps(const Corners& k) {
  const int rank = k.y1.rank();
  Ints swapped = all_axes(rank);
  std::swap(swapped[static_cast<std::size_t>(rank) - 1], swapped[static_cast<std::size_t>(rank) - 2]);
  const auto other = [&](Val v) { return transpose(v, swapped); };
  const Val zero = like(0, k.y1);
  const Val height = maximum(minimum(k.y2, other(k.y2)) - maximum(k.y1, other(k.y1)), zero);
  const Val width = maximum(minimum(k.x2, other(k.x2)) - maximum(k.x1, other(k.x1)), zero);
  const Val area = (k.y2 - k.y1) * (k.x2 - k.x1), common = height * width;
  return tf("DivNoNan", {common, area + other(area) - common});
}

void non_max_suppression(OnnxNode& n) {
  const Val boxes = n.in(0), scores = n.in(1);  // [batch, n, 4], [batch, classes, n]
  const std::int64_t batch = scores.static_dim(0), classes = scores.static_dim(1),
                     count = scores.static_dim(2);
  const std::int64_t row_count = checked_times(batch, classes);
  if (count > kMaxBoxes)
    throw InvalidArgument(fmt::format("{} boxes are too many to compare all with all", count));
  const auto scalar = [&](int i, DType dtype) {
    return n.has(i) ? cast(reshape(n.in(i), Ints{}), dtype) : n.b.number(0, dtype);
  };
  const Val most = scalar(2, DType::Int64), overlap = scalar(3, DType::Float32);
  const Val rows = reshape(scores, Ints{row_count, count});
  const Val sorted =
      tf("TopKV2", {rows, n.b.number(static_cast<double>(count), DType::Int32)}, {{"sorted", true}});
  const Val order = cast(sorted.at(1), DType::Int64);  // [batch * classes, n]
  const Val row = expand_dims(range(n.b.number(static_cast<double>(row_count), DType::Int64)), 1);
  const Val batch_of_row = tf("FloorDiv", {row, like(static_cast<double>(classes), row)});
  const Val places = pack({batch_of_row + order * 0.0, order}, 2);
  const Val in_order = tf("GatherNd", {boxes, places});
  const Val iou = overlaps(corners(in_order, n.i("center_point_box", 0) != 0));
  const Val position = range(n.b.number(static_cast<double>(count), DType::Int64));
  const Val later = tf("Less", {expand_dims(position, 1), expand_dims(position, 0)});
  const Val drops = tf("LogicalAnd", {tf("Greater", {iou, overlap}), later});  // [rows, by, which]
  Val stays = n.has(4) ? tf("Greater", {sorted, scalar(4, DType::Float32)})
                       : tf("GreaterEqual", {order, like(0, order)});
  for (std::int64_t i = 0; i + 1 < count; ++i) {
    const Val dropped =
        tf("LogicalAnd", {squeeze(slice(drops, 1, i, i + 1), {1}), slice(stays, 1, i, i + 1)});
    stays = tf("LogicalAnd", {stays, tf("LogicalNot", {dropped})});
  }
  const Val number = tf("Cumsum", {cast(stays, DType::Int64), n.b.number(1, DType::Int32)});
  const Val chosen = tf("Where", {tf("LogicalAnd", {stays, tf("LessEqual", {number, most})})});  // [m, 2]
  const Val chosen_row = slice(chosen, 1, 0, 1), per_batch = like(static_cast<double>(classes), chosen_row);
  const Val box = expand_dims(tf("GatherNd", {order, chosen}), 1);
  n.out(0,
        concat({tf("FloorDiv", {chosen_row, per_batch}), tf("FloorMod", {chosen_row, per_batch}), box}, 1));
}

}  // namespace

void add_detection(Translations& t) { t.add("NonMaxSuppression", non_max_suppression); }

}  // namespace braid::onnx
