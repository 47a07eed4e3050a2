#include "engine/input/generators/hstu_generator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/init.h"
#include "base/random_formulas.h"
#include "engine/input/formats/record_sink.h"
#include "engine/input/generators/auc_ceiling.h"

namespace braid {
namespace {

constexpr std::int64_t kDays = 300, kDay = 86400, kStep = 5, kBenchmarkHistory = 4086;
constexpr double kMedianEvents = 2695, kMeanEvents = 4763, kMostEvents = 27738, kScanned = 20000;
constexpr double kLiked = 0.019, kOther = 0.010, kListened = 0.613 / (0.613 + 0.359);
constexpr std::int64_t kListen = 1, kLike = 2, kSkip = 4;
constexpr int kTastes = 4;

/// Numbers that follow from (seed, user or item, what, number).
class HstuDraws {
 public:
  HstuDraws(std::uint64_t seed, const char* what, std::int64_t of)
      : key_(random::mix(make_rng_key(seed, what).value ^ random::mix(static_cast<std::uint64_t>(of) + 1))) {}
  double uniform() {  // in (0, 1), of 53 bits
    return (static_cast<double>(random::mix(key_ + 0x9E3779B97F4A7C15ULL * ++drawn_) >> 11) + 0.5) * 0x1p-53;
  }
  double normal() { return normal_quantile(uniform()); }

 private:
  std::uint64_t key_, drawn_ = 0;
};

struct Event {
  std::int64_t time = 0, item = 0, action = 0;
  double probability = 0;  // that it is listened to, of those that are that or skipped
  bool is_organic = false;
};

/// Where a sample's candidate is.
struct Anchor {
  std::int64_t day, user, event;
};

class HstuModel {
 public:
  explicit HstuModel(const HstuGeneratorOptions& options) : options_(options) {
    scale_ = static_cast<double>(options.history) / static_cast<double>(kBenchmarkHistory);
  }

  std::int64_t artist(std::int64_t item) const { return of_item(item, "hstu/artist", options_.artists); }
  std::int64_t artists() const { return options_.artists; }
  std::int64_t album(std::int64_t item) const { return of_item(item, "hstu/album", options_.albums); }

  /// The events of a user, in the order of time.
  std::vector<Event> events(std::int64_t user) const {
    HstuDraws draws(options_.seed, "hstu/user", user);
    const double spread = std::sqrt(2 * std::log(kMeanEvents / kMedianEvents));
    const double count = std::min(kMostEvents, kMedianEvents * std::exp(spread * draws.normal())) * scale_;
    std::array<double, kTastes> taste{};
    for (double& each : taste) each = draws.normal();
    std::vector<Event> all(static_cast<std::size_t>(std::max(1.0, count)));
    for (Event& event : all)
      event.time =
          static_cast<std::int64_t>(draws.uniform() * static_cast<double>(kDays * kDay / kStep)) * kStep;
    std::ranges::sort(all, {}, &Event::time);
    for (Event& event : all) make(event, taste, draws);
    return all;
  }
  /// The anchors of a user: events that are listened to or skipped with enough before them, at most so many
  /// before the last day.
  void add_anchors(std::int64_t user, bool evaluation, std::vector<Anchor>& anchors) const {
    const std::vector<Event> all = events(user);
    std::vector<Anchor> own;
    for (std::int64_t e = options_.history; e < std::ssize(all); ++e) {
      const Event& event = all[static_cast<std::size_t>(e)];
      const std::int64_t day = event.time / kDay;
      if ((event.action & (kListen | kSkip)) != 0 && (day == kDays - 1) == evaluation)
        own.push_back({day, user, e});
    }
    const std::int64_t kept = std::min<std::int64_t>(options_.samples_of_user, std::ssize(own));
    for (std::int64_t i = 0; i < kept; ++i)
      anchors.push_back(own[static_cast<std::size_t>(i * std::ssize(own) / kept)]);
  }
  /// Places of an anchor's history.
  std::vector<std::int64_t> history(const std::vector<Event>& all, std::int64_t anchor) const {
    const std::int64_t each = options_.history / 3;
    const std::int64_t first =
        std::max<std::int64_t>(0, anchor - static_cast<std::int64_t>(kScanned * scale_));
    std::array<std::int64_t, 3> left{each, each, each};
    std::vector<std::int64_t> places;
    for (std::int64_t e = anchor - 1; e >= first; --e) {
      const std::int64_t action = all[static_cast<std::size_t>(e)].action;
      if (action != 0 && left[static_cast<std::size_t>(action / 2)]-- > 0) places.push_back(e);
    }
    std::ranges::reverse(places);
    return places;
  }

 private:
  std::int64_t of_item(std::int64_t item, const char* what, std::int64_t most) const {
    HstuDraws draws(options_.seed, what, item);
    const double u = draws.uniform();
    return std::min(most - 1, static_cast<std::int64_t>(std::pow(static_cast<double>(most) + 1, u)) - 1);
  }
  /// Small ids are popular: density 1 / x.
  std::int64_t item(double uniform) const {
    return std::min(
        options_.items - 1,
        static_cast<std::int64_t>(std::pow(static_cast<double>(options_.items) + 1, uniform)) - 1);
  }
  void make(Event& event, const std::array<double, kTastes>& taste, HstuDraws& draws) const {
    event.item = item(draws.uniform());
    HstuDraws of_item(options_.seed, "hstu/item", event.item);
    HstuDraws of_artist(options_.seed, "hstu/taste", artist(event.item));
    double affinity = 0;
    for (const double t : taste) affinity += t * (of_artist.normal() + 0.5 * of_item.normal());
    const double bias = std::log(kListened / (1 - kListened));
    event.probability = 1 / (1 + std::exp(-1.5 * bias - 0.8 * affinity));
    const double kind = draws.uniform(), listened = draws.uniform();
    event.is_organic = draws.uniform() < 0.5;
    if (kind < kLiked)
      event.action = kLike;
    else if (kind < kLiked + kOther)
      event.action = 0;
    else
      event.action = listened < event.probability ? kListen : kSkip;
  }

  const HstuGeneratorOptions& options_;
  double scale_;
};

constexpr std::array kWholeNumbers = {"uid",
                                      "item",
                                      "artist",
                                      "album",
                                      "user_x_hour",
                                      "item_x_hour",
                                      "artist_x_hour",
                                      "user_x_is_organic",
                                      "user_x_artist_x_hour",
                                      "day",
                                      "label"};
constexpr std::array kNumbers = {"hour_cos", "hour_sin", "day_cos", "day_sin"};
constexpr std::array kLists = {"history_item", "history_artist", "history_album", "history_action"};

std::unique_ptr<RecordSink> open_sink(const std::filesystem::path& file, FileFormat format) {
  RecordSinkOptions sink{.format = format};
  const auto add = [&](const char* name, FeatureKind kind, bool is_list) {
    sink.columns.emplace_back(name);
    sink.kinds.push_back({kind, is_list});
  };
  for (const char* name : kWholeNumbers) add(name, FeatureKind::Int64, false);
  for (const char* name : kNumbers) add(name, FeatureKind::Float, false);
  for (const char* name : kLists) add(name, FeatureKind::Int64, true);
  add("history_age", FeatureKind::Float, true);
  sink.row_group_rows = 256;  // of 40 to 100 KB each
  return RecordSink::create(file, sink);
}

/// Cosine and sine of a share of a circle, with the reference's 3.14 for pi.
std::array<float, 2> on_circle(double share) {
  return {static_cast<float>(std::cos(2 * 3.14 * share)), static_cast<float>(std::sin(2 * 3.14 * share))};
}

/// Returns the tokens of the history.
std::int64_t write_sample(const HstuModel& model, const Anchor& anchor, const std::vector<Event>& all,
                          RecordSink& sink) {
  const Event& event = all[static_cast<std::size_t>(anchor.event)];
  const std::int64_t hour = event.time / 3600 % 24, weekday = anchor.day % 7;
  FeatureSet record;
  const std::int64_t uid = anchor.user, artist = model.artist(event.item);
  const std::array<std::int64_t, kWholeNumbers.size()> wholes{uid,
                                                              event.item,
                                                              artist,
                                                              model.album(event.item),
                                                              uid * 24 + hour,
                                                              event.item * 24 + hour,
                                                              artist * 24 + hour,
                                                              uid * 2 + (event.is_organic ? 1 : 0),
                                                              (uid * model.artists() + artist) * 24 + hour,
                                                              anchor.day,
                                                              event.action == kListen ? 1 : 0};
  for (std::size_t i = 0; i < wholes.size(); ++i) record.add(kWholeNumbers[i], wholes[i]);
  const auto by_hour = on_circle(static_cast<double>(hour) / 24),
             by_day = on_circle(static_cast<double>(weekday) / 7);
  const std::array<float, kNumbers.size()> floats{by_hour[0], by_hour[1], by_day[0], by_day[1]};
  for (std::size_t i = 0; i < floats.size(); ++i) record.add(kNumbers[i], floats[i]);
  std::array<std::vector<std::int64_t>, kLists.size()> lists;
  std::vector<float> ages;
  const std::vector<std::int64_t> places = model.history(all, anchor.event);
  for (const std::int64_t place : places) {
    const Event& past = all[static_cast<std::size_t>(place)];
    const std::array<std::int64_t, kLists.size()> values{past.item, model.artist(past.item),
                                                         model.album(past.item), past.action};
    for (std::size_t i = 0; i < lists.size(); ++i) lists[i].push_back(values[i]);
    ages.push_back(static_cast<float>(event.time - past.time));
  }
  for (std::size_t i = 0; i < lists.size(); ++i)
    record.add(kLists[i], std::span<const std::int64_t>(lists[i]));
  record.add("history_age", std::span<const float>(ages));
  sink.write(record);
  return std::ssize(places);
}

void check(const HstuGeneratorOptions& options) {
  if (options.users < 1 || options.samples_of_user < 1)
    throw InvalidArgument("users and samples of a user must be positive");
  if (options.history < 3 || options.history % 3 != 0)
    throw InvalidArgument("history must be a positive multiple of 3, got " + std::to_string(options.history));
  if (options.items < 1 || options.artists < 1 || options.albums < 1)
    throw InvalidArgument("items, artists and albums must be positive");
}

}  // namespace

HstuGeneratorResult generate_hstu(const std::filesystem::path& file, const HstuGeneratorOptions& options,
                                  bool evaluation) {
  check(options);
  const HstuModel model(options);
  std::vector<Anchor> anchors;
  for (std::int64_t user = 0; user < options.users; ++user) model.add_anchors(user, evaluation, anchors);
  if (anchors.empty())
    throw InvalidArgument("none of " + std::to_string(options.users) + " users has " +
                          std::to_string(options.history) + " events before " +
                          (evaluation ? "one of the last day" : "another") +
                          ": more users, or a shorter history");
  std::ranges::stable_sort(anchors, {}, &Anchor::day);
  const std::unique_ptr<RecordSink> sink = open_sink(file, options.format);
  AucCeiling ceiling;
  HstuGeneratorResult result;
  std::int64_t user = -1;
  std::vector<Event> all;
  for (const Anchor& anchor : anchors) {
    if (std::exchange(user, anchor.user) != anchor.user) all = model.events(anchor.user);
    const Event& event = all[static_cast<std::size_t>(anchor.event)];
    ceiling.add(event.probability, event.action == kListen);
    result.tokens += write_sample(model, anchor, all, *sink);
  }
  sink->finish();
  result.samples = ceiling.rows();
  result.positives = ceiling.positives();
  result.auc_ceiling = ceiling.auc();
  return result;
}

}  // namespace braid
