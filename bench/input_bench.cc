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
// "read" lines are of a file past the page cache (dropped from it before each round), by the clock: whole, by
// pread through the page cache and by direct reads, and "dd" with iflag=direct and 8 MiB blocks; then the
// mlperf_dlrm blocks of it by two threads, both ways.
//
// Peers in the same run: memory (a copy of the file's bytes) and crc (CRC-32C alone), which bound the
// framing. Files are made first, read once to be in the page cache, then measured: median over rounds, one
// thread. "mb_per_s" is by the thread's own CPU time, which others on the machine disturb little;
// "wall_mb_per_s" by the clock. A JSON line each.
#include <fcntl.h>
#include <fmt/core.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/cpu.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "engine/input/files/file_reads.h"
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

/// Nothing of the file is in the page cache any more.
void drop_cached(const fs::path& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY);
  ::fdatasync(descriptor);
  ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
  ::close(descriptor);
}

/// By the clock.
Seconds median_uncached(const fs::path& file, int rounds, const std::function<void()>& work) {
  std::vector<double> wall;
  for (int r = 0; r < rounds; ++r) {
    drop_cached(file);
    const auto begin = Clock::now();
    work();
    wall.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  std::sort(wall.begin(), wall.end());
  return {wall[wall.size() / 2], wall[wall.size() / 2]};
}

std::shared_ptr<FileReads> reads_of(bool direct) {
  FileReadOptions options;
  options.direct = direct;
  return std::make_shared<FileReads>(options);
}

void read_blocks(BlockSource& blocks) {
  const auto read = [&](std::size_t first) {
    for (std::size_t b = first; b + 8 <= blocks.blocks().size(); b += 16) {
      std::vector<BlockPart> window;
      for (std::size_t p = b; p < b + 8; ++p) window.push_back({p, 0, blocks.blocks()[p].rows});
      expect(blocks.read(window)->rows > 0, "rows are missing");
    }
  };
  std::thread other(read, 8);
  read(0);
  other.join();
}

void bench_reads(const fs::path& dir, std::int64_t rows, int rounds) {
  const fs::path file = dir / "large.bin";
  generate_mlperf_dlrm(file, {.rows = rows});
  const std::uint64_t bytes = fs::file_size(file);
  std::vector<std::byte> part(std::size_t{1} << 20);
  for (const bool direct : {false, true})
    report(direct ? "read, direct" : "read, page cache", bytes,
           median_uncached(
               file, rounds,
               [&] {
                 const auto reads = reads_of(direct);
                 const auto reader = reads->reader();
                 reader->begin({{file, 0, bytes}});
                 for (std::uint64_t at = 0; at < bytes; at += part.size())
                   reader->read(std::span(part).first(std::min<std::uint64_t>(part.size(), bytes - at)));
                 expect(!direct || reads->totals().direct_bytes == bytes, "reads are not direct here");
               }),
           0);
  const std::string dd = fmt::format("dd if='{}' of=/dev/null bs=8M iflag=direct 2>/dev/null", file.string());
  report("read, peer: dd iflag=direct", bytes,
         median_uncached(file, rounds, [&] { expect(std::system(dd.c_str()) == 0, "dd fails"); }), 0);
  for (const bool direct : {false, true}) {
    const auto blocks = make_row_blocks(
        mlperf_dlrm_indexes({file}, std::uint64_t{1} << 20),
        [](const ReadOptions& read) { return stream_mlperf_dlrm({}, {.read = read}); }, 0, reads_of(direct));
    report(direct ? "read, mlperf_dlrm windows, direct" : "read, mlperf_dlrm windows, page cache", bytes,
           median_uncached(file, rounds, [&] { read_blocks(*blocks); }), 0);
  }
  fs::remove(file);
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
  bench_reads(dir, 10 * rows, rounds);
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
