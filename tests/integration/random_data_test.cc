// Tables drawn at random train to the same bits from every format, however their rows are read, and over an
// interruption; predictions are the same from every format, too. BRAID_RANDOM_TABLES says how many are drawn,
// BRAID_RANDOM_SEED from which seed on; a failure names its seed.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/files.h"
#include "tests/integration/checkpoints.h"
#include "tests/integration/drawn_data.h"
#include "tests/integration/drawn_job.h"

namespace braid::integration {
namespace {

class RandomData : public IntegrationTest {
 protected:
  struct Format {
    std::string name, ending;
    std::vector<std::string> files;
  };

  Job job(const std::string& name, const DrawnData& data, const Format& format,
          const std::string& more = {}) {
    return Job{write(name + ".pbtxt", data.job(format.name, format.files, more)), directory(), {}};
  }

  /// The files of a CSV in another format; none where this build does not have it.
  Format converted(const Format& csv, const std::string& name, const std::string& ending) {
    Format format{name, ending, {}};
    for (const std::string& file : csv.files) {
      format.files.push_back(file + ending);
      const auto convert =
          run("convert", {"data", "convert", "--header", path(file), "--out", path(format.files.back())});
      if (convert->exit_code() == 0) continue;
      EXPECT_THAT(convert->err(), ::testing::HasSubstr("Parquet")) << ending;
      return {};
    }
    return format;
  }

  std::string predictions(const std::string& name, const Job& job, const Format& format) {
    std::vector<std::string> arguments{"predict",
                                       "--job",
                                       job.file,
                                       "--data-dir",
                                       job.data.string(),
                                       "--checkpoint",
                                       path("checkpoints"),
                                       "--in",
                                       path(format.files[0]),
                                       "--out",
                                       path(name + ".csv")};
    const auto predict = run(name, arguments);
    EXPECT_EQ(predict->exit_code(), 0) << predict->err();
    return read_file(directory() / (name + ".csv"));
  }

  void interrupted(const DrawnData& data, const Format& csv, const std::vector<float>& losses) {
    const std::size_t cut = losses.size() / 2;
    if (cut == 0) return;
    const Job saved = job("saved", data, csv).with(checkpoints_in(directory() / "checkpoints", 1000));
    std::vector<float> both = train("first", saved.with({fmt::format("steps={}", cut)}));
    Cluster second(directory() / "second", saved.with({fmt::format("steps={}", losses.size())}), {},
                   {"--resume"});
    second.expect_success();
    const std::vector<float> rest = losses_of(second.steps_file(0), cut);
    both.insert(both.end(), rest.begin(), rest.end());
    EXPECT_EQ(both, losses) << "cut behind step " << cut;
  }

  void compare(const DrawnData& data) {
    Format csv{"CSV", "", {}};
    for (std::size_t f = 0; f < data.files.size(); ++f)
      write(csv.files.emplace_back(fmt::format("part-{}.csv", f)), data.files[f]);
    const std::vector<float> losses = train("csv", job("csv", data, csv));
    EXPECT_EQ(train("threads", job("csv", data, csv).with({"staging.num_threads=3", "staging.capacity=2"})),
              losses);
    interrupted(data, csv, losses);
    const std::string predicted = predictions("predicted", job("csv", data, csv), csv);
    const auto rows = std::count(predicted.begin(), predicted.end(), '\n') - 1;
    EXPECT_EQ(rows, (data.rows + std::ssize(data.files) - 1) / std::ssize(data.files));
    for (const auto& [name, ending] :
         {std::pair{"TFRECORD", ".tfrecord"}, std::pair{"PARQUET", ".parquet"}}) {
      const Format other = converted(csv, name, ending);
      if (other.files.empty()) continue;
      EXPECT_EQ(train(name, job(name, data, other)), losses) << name;
      EXPECT_EQ(predictions(std::string(name) + "-predicted", job(name, data, other), other), predicted)
          << name;
    }
    const std::string order = "read: STREAM stream { window_rows: 50 virtual_shards: 2 block_bytes: 2000 ";
    EXPECT_EQ(
        train("stream", job("stream", data, csv, order + "threads: 1 memory_bytes: 1 direct_reads: OFF }")),
        train("streams", job("streams", data, csv, order + "threads: 4 direct_reads: ON }")));
  }
};

TEST_F(RandomData, HasTheSameBitsFromEveryFormatAndReader) {
  const std::uint64_t first = number_of("BRAID_RANDOM_SEED", 1), tables = number_of("BRAID_RANDOM_TABLES", 5);
  for (std::uint64_t seed = first; seed < first + tables; ++seed) {
    const DrawnData data = draw_data(seed);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, data.text()));
    for (const Path& name : list_directory(directory())) std::filesystem::remove_all(directory() / name);
    compare(data);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace braid::integration
