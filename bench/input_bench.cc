// Question: how fast does one core decode each input format, in MB of the file a second?
//
//   input_bench [--rows N] [--rounds N]
//
// Formats: "tfrecord framing" finds records and checks both CRCs, nothing more (aim 1500 MB/s); "example"
// also decodes every tf.train.Example into views; "tfrecord criteo" makes the table that training reads;
// "csv" has 13 numbers, 2 hashed categories and a label a line, into a table by a schema (aim 200 MB/s);
// "criteo" lines of that layout; "csv.gz" the csv again, inflated on the same core, in inflated bytes;
// "mlperf_dlrm" the benchmark's binary rows, some thousand at a time, with whole and with cut tables (ids
// modulo their rows), and as a stream of blocks that two threads read (by the clock).
//
// Peers in the same run: memory (a copy of the file's bytes) and crc (CRC-32C alone), which bound the
// framing. Files are made first, read once to be in the page cache, then measured: median over rounds, one
// thread. "mb_per_s" is by the thread's own CPU time, which others on the machine disturb little;
// "wall_mb_per_s" by the clock. A JSON line each.
#include <fmt/core.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/cpu.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "engine/input/formats/example.h"
#include "engine/input/formats/mlperf_dlrm.h"
#include "engine/input/formats/readers.h"
#include "engine/input/formats/tfrecord.h"
#include "engine/input/generators/criteo_generator.h"
#include "engine/input/stream/row_blocks.h"

namespace braid {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct Seconds {
  double cpu = 0, wall = 0;
};

double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Seconds median_seconds(int rounds, const std::function<void()>& work) {
  work();  // warm-up
  std::vector<double> cpu, wall;
  for (int r = 0; r < rounds; ++r) {
    const auto begin = Clock::now();
    const double cpu_begin = cpu_seconds();
    work();
    cpu.push_back(cpu_seconds() - cpu_begin);
    wall.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  std::sort(cpu.begin(), cpu.end());
  std::sort(wall.begin(), wall.end());
  return {cpu[cpu.size() / 2], wall[wall.size() / 2]};
}

void report(const std::string& what, std::uint64_t bytes, Seconds seconds, double aim) {
  const double megabytes = static_cast<double>(bytes) / 1e6, rate = megabytes / seconds.cpu;
  fmt::print(
      "{{\"bench\":\"input\",\"format\":\"{}\",\"megabytes\":{:.1f},\"mb_per_s\":{:.0f},\"wall_mb_per_s\":{:."
      "0f},{}"
      "\"cpu\":\"{}\"}}\n",
      what, megabytes, rate, megabytes / seconds.wall,
      aim > 0 ? fmt::format("\"aim_mb_per_s\":{:.0f},\"reached\":{},", aim, rate >= aim) : "", cpu_name());
}

void expect(bool good, const char* what) {
  if (!good) throw Internal(std::string("input_bench: ") + what);
}

std::string csv_text(std::int64_t rows) {
  std::string text;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (int i = 0; i < 13; ++i)
      text += fmt::format("{},", static_cast<double>((r * 7919 + i * 104729) % 100000) / 8);
    text += fmt::format("city{},\"name {}\",{}\n", r % 997, r % 9973, r % 3 == 0 ? 1 : 0);
  }
  return text;
}

int run(std::int64_t rows, int rounds) {
  const fs::path dir = fs::temp_directory_path() / fmt::format("braid-input-bench-{}", ::getpid());
  fs::create_directories(dir);
  const fs::path clicks = dir / "clicks.tsv", records = dir / "clicks.tfrecord", csv = dir / "a.csv",
                 packed = dir / "a.csv.gz", large = dir / "large.tfrecord";
  generate_criteo(clicks, {.rows = rows});
  generate_criteo(records, {.rows = rows, .format = FileFormat::TfRecord});
  const std::string text = csv_text(rows);
  std::ofstream(csv, std::ios::binary) << text;
  gzFile gz = gzopen(packed.c_str(), "wb6");
  gzwrite(gz, text.data(), static_cast<unsigned>(text.size()));
  gzclose(gz);
  {
    TfRecordWriter out(large);
    const std::string record(16384, 'x');
    for (std::int64_t r = 0; r < rows / 16; ++r) out.write(record);
    out.finish();
  }

  const std::string bytes = read_text_file(records);
  std::string copy(bytes.size(), '\0');
  report("peer: memory", bytes.size(),
         median_seconds(rounds, [&] { std::memcpy(copy.data(), bytes.data(), bytes.size()); }), 0);
  std::uint32_t crc = 0;
  report("peer: crc", bytes.size(),
         median_seconds(rounds, [&] { crc ^= crc32c(std::as_bytes(std::span(bytes))); }), 0);
  for (const fs::path& file : {records, large})
    report(file == records ? "tfrecord framing, records of a click" : "tfrecord framing, records of 16 KiB",
           fs::file_size(file),
           median_seconds(rounds,
                          [&] {
                            TfRecordReader reader(file);
                            while (reader.next()) {
                            }
                            expect(reader.number() == (file == records ? rows : rows / 16),
                                   "records are missing");
                          }),
           1500);
  report("example", fs::file_size(records),
         median_seconds(rounds,
                        [&] {
                          TfRecordReader reader(records);
                          ExampleReader example;
                          while (const auto record = reader.next()) example.parse(*record);
                          expect(example.find("label") != nullptr, "no label");
                        }),
         0);
  report(
      "tfrecord criteo", fs::file_size(records),
      median_seconds(rounds, [&] { expect(read_criteo({records}, {})->rows == rows, "rows are missing"); }),
      0);
  CsvOptions schema;
  for (int i = 0; i < 13; ++i)
    schema.columns.push_back({.name = fmt::format("n{}", i), .kind = ColumnKind::Numeric});
  schema.columns.push_back({.name = "city", .kind = ColumnKind::Categorical, .buckets = 1000});
  schema.columns.push_back({.name = "name", .kind = ColumnKind::Categorical, .buckets = 1000});
  schema.columns.push_back({.name = "y", .kind = ColumnKind::Label});
  for (const fs::path& file : {csv, packed})
    report(
        file == csv ? "csv" : "csv.gz", text.size(),
        median_seconds(rounds, [&] { expect(read_csv({file}, schema)->rows == rows, "rows are missing"); }),
        file == csv ? 200 : 0);
  report("criteo", fs::file_size(clicks),
         median_seconds(rounds, [&] { expect(read_criteo({clicks}, {})->rows == rows, "rows are missing"); }),
         0);
  const fs::path binary = dir / "mlperf.bin";
  generate_mlperf_dlrm(binary, {.rows = rows});
  for (const std::int64_t most : {std::int64_t{0}, std::int64_t{1000000}})
    report(most == 0 ? "mlperf_dlrm" : "mlperf_dlrm, cut tables", fs::file_size(binary),
           median_seconds(rounds,
                          [&] {
                            const auto stream = stream_mlperf_dlrm({binary}, {.max_rows = most});
                            std::int64_t read = 0, part = 0;
                            while ((part = stream->next(8192)->rows) > 0) read += part;
                            expect(read == rows, "rows are missing");
                          }),
           most == 0 ? 3000 : 0);
  const auto blocks = make_row_blocks(
      mlperf_dlrm_indexes({binary}, std::uint64_t{4} << 20),
      [](const ReadOptions& read) { return stream_mlperf_dlrm({}, {.read = read}); }, 0);
  Seconds both = median_seconds(rounds, [&] {
    const auto read = [&](std::size_t first) {
      for (std::size_t b = first; b < blocks->blocks().size(); b += 2) {
        const BlockPart part{b, 0, blocks->blocks()[b].rows};
        expect(blocks->read({&part, 1})->rows == part.rows, "rows are missing");
      }
    };
    std::thread other(read, 1);
    read(0);
    other.join();
  });
  both.cpu = both.wall;
  report("mlperf_dlrm, blocks, two threads", fs::file_size(binary), both, 0);
  fs::remove_all(dir);
  return crc == 1 ? 1 : 0;  // the sum is used
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  std::int64_t rows = 100000;
  int rounds = 7;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--rows") rows = std::atoll(argv[i + 1]);
    if (std::string(argv[i]) == "--rounds") rounds = std::atoi(argv[i + 1]);
  }
  try {
    return braid::run(rows, rounds);
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
