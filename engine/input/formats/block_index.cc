#include "engine/input/formats/block_index.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/files.h"
#include "base/init.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "engine/input/formats/block_scan.h"
#include "engine/input/formats/line_reader.h"
#include "engine/input/formats/tfrecord.h"

namespace braid {
namespace {

constexpr int kIndexVersion = 1;
constexpr std::size_t kUnpackChunk = std::size_t{1} << 20;

std::string first_line(const std::filesystem::path& file) {
  LineSource lines{FilePiece(file)};
  std::string_view line;
  return lines.next(line) ? std::string(line) : std::string();
}

std::filesystem::path cache_directory() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache)
    return std::filesystem::path(cache) / "braid";
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home && *home ? home : "/tmp") / ".cache" / "braid";
}

/// A name for what belongs to a file, in a directory of many files'.
std::string name_of(const std::filesystem::path& file, const char* ending) {
  std::error_code ignored;
  const std::filesystem::path whole =
      scheme_of(file.native()).empty() ? std::filesystem::absolute(file, ignored) : file;
  return fmt::format("{}.{:016x}{}", file.filename().string(), stable_hash(whole.native()), ending);
}

std::string options_text(const BlockIndexOptions& options, const std::string& head) {
  const bool header = options.is_header && options.is_header(head);
  return fmt::format("layout={} separator={} comment={} header={} block_bytes={}",
                     static_cast<int>(options.layout), static_cast<int>(options.separator),
                     stable_hash(options.comment), header, options.block_bytes);
}

std::string to_text(const IndexedFile& index, const std::string& options) {
  std::string text =
      fmt::format("braid-index {}\noptions {}\nfile {} {} {} {}\n", kIndexVersion, options, index.stamp.size,
                  index.stamp.changed_ns, index.header_end, index.packed ? 1 : 0);
  for (const IndexedBlock& block : index.blocks)
    text += fmt::format("block {} {} {} {} {}\n", block.begin, block.end, block.lines_before, block.rows,
                        block.crc);
  return text + fmt::format("end {}\n", crc32c(std::as_bytes(std::span(text))));
}

/// The index in `text`; nothing, with why, where it does not fit.
std::optional<IndexedFile> from_text(const std::string& text, const std::string& options,
                                     const FileStamp& stamp, std::string& why) {
  const std::size_t end = text.rfind("end ");
  why = "it is damaged";
  if (end == std::string::npos ||
      text.substr(end) != fmt::format("end {}\n", crc32c(std::as_bytes(std::span(text).first(end)))))
    return std::nullopt;
  std::istringstream lines(text.substr(0, end));
  std::string line, word;
  IndexedFile index;
  std::getline(lines, line);
  if (line != fmt::format("braid-index {}", kIndexVersion))
    return why = "it is of another version", std::nullopt;
  std::getline(lines, line);
  if (line != "options " + options) return why = "it is of other settings", std::nullopt;
  lines >> word >> index.stamp.size >> index.stamp.changed_ns >> index.header_end >> index.packed;
  if (!lines || word != "file") return std::nullopt;
  if (index.stamp != stamp) return why = "the file has changed since", std::nullopt;
  while (lines >> word) {
    IndexedBlock block;
    lines >> block.begin >> block.end >> block.lines_before >> block.rows >> block.crc;
    if (!lines || word != "block") return std::nullopt;
    index.blocks.push_back(block);
  }
  return index;
}

bool write_quietly(const std::filesystem::path& path, const std::string& content) {
  try {
    write_file_atomically(path, content);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Keeps an index for the next run; where that is not possible it is made again then.
void keep(const std::filesystem::path& file, const BlockIndexOptions& options, const std::string& text) {
  const std::filesystem::path first = index_path(file, options);
  if (write_quietly(first, text)) return;
  const std::filesystem::path second = cache_directory() / name_of(file, ".braid_index");
  std::error_code ignored;
  std::filesystem::create_directories(second.parent_path(), ignored);
  if (write_quietly(second, text)) return;
  log_warning("the index of '{}' can be written neither to '{}' nor to '{}': it is made again in each run",
              file.string(), first.string(), second.string());
}

std::optional<IndexedFile> kept(const std::filesystem::path& file, const BlockIndexOptions& options,
                                const std::string& options_id, const FileStamp& stamp) {
  for (const std::filesystem::path& path :
       {index_path(file, options), cache_directory() / name_of(file, ".braid_index")}) {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored)) continue;
    std::string why;
    try {
      if (auto found = from_text(read_file(path), options_id, stamp, why)) {
        found->file = file;
        return found;
      }
    } catch (const Error& error) {
      why = error.message();
    }
    log_info("the index '{}' is made again: {}", path.string(), why);
  }
  return std::nullopt;
}

/// The unpacked form of a file, which is made where it is not there.
std::filesystem::path unpack(const std::filesystem::path& file, const BlockIndexOptions& options,
                             const FileStamp& stamp) {
  const std::filesystem::path directory = options.directory.empty() ? cache_directory() : options.directory;
  const std::filesystem::path to =
      directory / name_of(file, fmt::format(".{:x}.{:x}.unpacked", stamp.size, stamp.changed_ns).c_str());
  std::error_code ignored;
  if (std::filesystem::is_regular_file(to, ignored)) return to;
  std::filesystem::create_directories(directory, ignored);
  log_info("'{}' is packed and large: it is unpacked into '{}' once", file.string(), to.string());
  const std::filesystem::path part = fmt::format("{}.{}.part", to.string(), ::getpid());
  try {
    File out = File::create(part);
    const auto source =
        open_bytes(file, options.layout == RecordLayout::TfRecord ? looks_like_tfrecord : nullptr);
    std::vector<char> chunk(kUnpackChunk);
    while (const std::size_t got = source->read(chunk)) out.write(std::as_bytes(std::span(chunk).first(got)));
    out.close();
    rename_path(part, to);
  } catch (...) {
    std::filesystem::remove(part, ignored);
    throw;
  }
  return to;
}

}  // namespace

FilePiece IndexedFile::piece(std::size_t number) const {
  FilePiece piece(file);
  if (packed) return piece;
  const IndexedBlock& block = blocks[number];
  piece.begin = block.begin;
  piece.end = block.end;
  piece.header_end = header_end;
  piece.lines_before = block.lines_before;
  piece.crc = block.crc;
  if (load) piece.bytes = load();
  return piece;
}

std::int64_t IndexedFile::rows() const {
  return std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0},
                         [](std::int64_t sum, const IndexedBlock& block) { return sum + block.rows; });
}

std::filesystem::path index_path(const std::filesystem::path& file, const BlockIndexOptions& options) {
  if (!options.directory.empty()) return options.directory / name_of(file, ".braid_index");
  if (!scheme_of(file.native()).empty()) return cache_directory() / name_of(file, ".braid_index");
  return file.native() + ".braid_index";
}

IndexedFile block_index(const std::filesystem::path& file, const BlockIndexOptions& options) {
  const FileStamp stamp = stamp_of(file);
  const std::string head = options.layout == RecordLayout::TfRecord ? std::string() : first_line(file);
  const std::string options_id = options_text(options, head);
  if (!options.directory.empty()) {
    std::error_code ignored;
    std::filesystem::create_directories(options.directory, ignored);
  }
  std::optional<IndexedFile> index = kept(file, options, options_id, stamp);
  if (!index) {
    index = scan_blocks(file, options, head);
    index->stamp = stamp;
    if (stamp_of(file) != stamp)
      throw DataLoss("'" + file.string() + "' was changed while its index was made");
    keep(file, options, to_text(*index, options_id));
  }
  if (index->packed && index->blocks.size() > 1) {
    BlockIndexOptions plain = options;
    if (plain.directory.empty()) plain.directory = cache_directory();
    return block_index(unpack(file, options, stamp), plain);
  }
  return std::move(*index);
}

std::vector<IndexedFile> block_indexes(
    const std::vector<std::filesystem::path>& files,
    const std::function<BlockIndexOptions(const std::filesystem::path&)>& options_of) {
  constexpr std::size_t kMostThreads = 8;
  std::vector<IndexedFile> indexes(files.size());
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  ThreadPool pool(static_cast<int>(std::clamp<std::size_t>(files.size(), 1, std::min(cores, kMostThreads))));
  pool.parallel_for(std::ssize(files), [&](std::int64_t f) {
    const auto i = static_cast<std::size_t>(f);
    indexes[i] = block_index(files[i], options_of(files[i]));
  });
  return indexes;
}

}  // namespace braid
