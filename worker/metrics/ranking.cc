#include "worker/metrics/ranking.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace braid::worker {
namespace {

using Order = std::span<const std::size_t>;

/// Rows of one score.
struct Tie {
  std::size_t rows = 0, positives = 0;
  double positive_weight = 0, negative_weight = 0;
};

/// Calls visit(tie) for each, best first.
template <class Visit>
void for_each_tie(const RankedRows& rows, Order order, Visit visit) {
  for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    Tie tie;
    for (; end < order.size() && rows.scores[order[end]] == rows.scores[order[begin]]; ++end) {
      const bool positive = rows.labels[order[end]] != 0;
      ++tie.rows;
      tie.positives += positive;
      (positive ? tie.positive_weight : tie.negative_weight) += rows.weight(order[end]);
    }
    visit(tie);
  }
}

/// Calls visit(part of the order) for each group.
template <class Visit>
void for_each_group(const RankedRows& rows, Order order, Visit visit) {
  if (rows.groups.empty()) {
    if (!order.empty()) visit(order);
    return;
  }
  for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && rows.groups[order[end]] == rows.groups[order[begin]]) ++end;
    visit(order.subspan(begin, end - begin));
  }
}

std::size_t positives_of(const RankedRows& rows, Order group) {
  return static_cast<std::size_t>(
      std::count_if(group.begin(), group.end(), [&](std::size_t row) { return rows.labels[row] != 0; }));
}

/// Positives among the best k: of the tie at the border its share.
double hits_at(std::int64_t k, const RankedRows& rows, Order group) {
  double hits = 0, left = static_cast<double>(k);
  for_each_tie(rows, group, [&](const Tie& tie) {
    const double taken = std::min(left, static_cast<double>(tie.rows));
    hits += taken * static_cast<double>(tie.positives) / static_cast<double>(tie.rows);
    left -= taken;
  });
  return hits;
}

double discount(std::size_t place) { return 1.0 / std::log2(static_cast<double>(place) + 2.0); }

double dcg_at(std::size_t k, const RankedRows& rows, Order group) {
  double sum = 0;
  std::size_t place = 0;
  for_each_tie(rows, group, [&](const Tie& tie) {
    double discounts = 0;
    for (std::size_t end = place + tie.rows; place < end; ++place)
      if (place < k) discounts += discount(place);
    sum += discounts * static_cast<double>(tie.positives) / static_cast<double>(tie.rows);
  });
  return sum;
}

double best_dcg_at(std::size_t k, std::size_t positives) {
  double sum = 0;
  for (std::size_t place = 0; place < std::min(k, positives); ++place) sum += discount(place);
  return sum;
}

}  // namespace

std::vector<std::size_t> ranked_order(const RankedRows& rows, bool by_group) {
  std::vector<std::size_t> order(rows.scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const bool grouped = by_group && !rows.groups.empty();
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (grouped && rows.groups[a] != rows.groups[b]) return rows.groups[a] < rows.groups[b];
    if (rows.scores[a] != rows.scores[b]) return rows.scores[a] > rows.scores[b];
    return a < b;  // sums of weights have one order
  });
  return order;
}

double auc(const RankedRows& rows, Order order) {
  double positives = 0, negatives = 0, in_order = 0;
  for_each_tie(rows, order, [&](const Tie& tie) {
    in_order += tie.negative_weight * (positives + tie.positive_weight / 2);
    positives += tie.positive_weight;
    negatives += tie.negative_weight;
  });
  return positives > 0 && negatives > 0 ? in_order / positives / negatives : kUndefined;
}

double average_precision(const RankedRows& rows, Order order) {
  double all = 0;
  for (const std::size_t row : order)
    if (rows.labels[row] != 0) all += rows.weight(row);
  if (all <= 0) return kUndefined;
  double positives = 0, seen = 0, sum = 0;
  for_each_tie(rows, order, [&](const Tie& tie) {
    positives += tie.positive_weight;
    seen += tie.positive_weight + tie.negative_weight;
    if (seen > 0) sum += tie.positive_weight / all * (positives / seen);
  });
  return sum;
}

double group_auc(const RankedRows& rows, Order order) {
  double sum = 0, weight = 0;
  for_each_group(rows, order, [&](Order group) {
    const double its = auc(rows, group);
    if (std::isnan(its)) return;
    double impressions = 0;
    for (const std::size_t row : group) impressions += rows.weight(row);
    sum += impressions * its;
    weight += impressions;
  });
  return weight > 0 ? sum / weight : kUndefined;
}

double precision_at(std::int64_t k, const RankedRows& rows, Order order) {
  double sum = 0, groups = 0;
  for_each_group(rows, order, [&](Order group) {
    sum += hits_at(k, rows, group) / static_cast<double>(k);
    ++groups;
  });
  return groups > 0 ? sum / groups : kUndefined;
}

double recall_at(std::int64_t k, const RankedRows& rows, Order order) {
  double sum = 0, groups = 0;
  for_each_group(rows, order, [&](Order group) {
    const std::size_t positives = positives_of(rows, group);
    if (positives == 0) return;
    sum += hits_at(k, rows, group) / static_cast<double>(positives);
    ++groups;
  });
  return groups > 0 ? sum / groups : kUndefined;
}

double ndcg_at(std::int64_t k, const RankedRows& rows, Order order) {
  const auto places = static_cast<std::size_t>(k);
  double sum = 0, groups = 0;
  for_each_group(rows, order, [&](Order group) {
    const std::size_t positives = positives_of(rows, group);
    if (positives == 0) return;
    sum += dcg_at(places, rows, group) / best_dcg_at(places, positives);
    ++groups;
  });
  return groups > 0 ? sum / groups : kUndefined;
}

}  // namespace braid::worker
