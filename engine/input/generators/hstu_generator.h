// Users' histories with the statistics of Yambda-5b, the data of MLPerf's HSTU: for tests and trials, as no
// result of the benchmark comes of them. User u is a function of (seed, u). Thread rule: pure functions.
//
//   events of a user   log-normal: median 2,695, mean 4,763, at most 27,738, over 300 days in steps of 5 s
//   kinds              listened to (61.3 %), skipped (35.9 %), liked (1.9 %), other (1.0 %)
//   items              a power law; each has an artist and an album, which follow from it
//   label              a candidate is listened to by the user's hidden taste for it and its artist, which the
//                      history shows
//
// A sample is a candidate, an event that is listened to or skipped, behind at least `history` earlier events.
// Its history is, of each of listened to, liked and skipped, the last third of `history` among the last
// 20,000 events, in the order of time. With another history than the benchmark's 4,086 these numbers of
// events are as many times smaller. Samples lie in the order of days, within a day by user. Those of the last
// day of all are for evaluation: none of their candidates is in a training sample.
#pragma once

#include <cstdint>
#include <filesystem>

#include "engine/input/files/byte_source.h"
#include "engine/input/formats/record_file.h"

namespace braid {

struct HstuGeneratorOptions {
  std::int64_t users = 0;
  std::uint64_t seed = 1;
  std::int64_t history = 4086;       // most tokens of a history; a multiple of 3
  std::int64_t samples_of_user = 8;  // at most, spread over the days before the last
  std::int64_t items = 9390624, artists = 1293395, albums = 3367692;
  FileFormat format = FileFormat::Parquet;
};

struct HstuGeneratorResult {
  std::int64_t samples = 0, positives = 0, tokens = 0;  // tokens of histories
  double auc_ceiling = 0;                               // AUC of the true probabilities
};

/// Makes the training samples, or with `evaluation` those of the last day, as records with the features
///   uid, item, artist, album, label                     integers; of the candidate
///   user_x_hour, item_x_hour, artist_x_hour, user_x_is_organic, user_x_artist_x_hour
///                                                       integers, one for each pair or triple
///   day                                                 from 0 on
///   hour_cos, hour_sin, day_cos, day_sin                floats
///   history_item, history_artist, history_album         lists of integers, of one length
///   history_action, history_age                         1 listened + 2 liked + 4 skipped; seconds before
/// Throws: InvalidArgument (options, or no user has enough events; files), Unavailable (disk).
HstuGeneratorResult generate_hstu(const std::filesystem::path& file, const HstuGeneratorOptions& options,
                                  bool evaluation);

}  // namespace braid
