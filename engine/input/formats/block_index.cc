#include "engine/input/formats/block_index.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
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
#include "engine/input/formats/field_reader.h"
#include "engine/input/formats/line_reader.h"
#include "engine/input/formats/tfrecord.h"

namespace braid {
namespace {

constexpr std::size_t kScanChunk = std::size_t{1} << 20;
/// Of an unpacked file that is one block.
constexpr std::uint64_t kLargestPacked = std::uint64_t{32} << 20;
constexpr int kIndexVersion = 1;

/// What a block has beside its place: the checksum of its bytes, and the lines before it.
struct BlockSums {
  std::uint32_t crc = 0;
  std::int64_t lines = 0;  // of this block and those before

  void add(std::span<const char> bytes) { crc = crc32c(std::as_bytes(bytes), crc); }
};

/// Gathers records into blocks of about a size.
class BlockCutter {
 public:
  BlockCutter(std::uint64_t begin, std::uint64_t block_bytes) : begin_(begin), block_bytes_(block_bytes) {}
  /// True: a block ends with it, and take_sums() is to follow where its bytes are looked at.
  bool add_record(std::uint64_t end) {
    ++rows_;
    if (end - begin_ < block_bytes_) return false;
    cut(end);
    return true;
  }
  /// Those of the block that was cut last; they begin anew for the next one.
  void take_sums(BlockSums& sums) {
    blocks_.back().crc = std::exchange(sums.crc, 0);
    blocks_.back().lines_before = std::exchange(lines_, sums.lines);
  }
  /// The last record may lack its end, and what is behind it belongs to it. True: take_sums() is to follow.
  bool end(std::uint64_t end) {
    if (rows_ == 0) return false;
    cut(end);
    return true;
  }
  std::vector<IndexedBlock> blocks() { return std::move(blocks_); }
  std::vector<IndexedBlock> finish(std::uint64_t last) {
    end(last);
    return blocks();
  }

 private:
  void cut(std::uint64_t end) {
    blocks_.push_back({begin_, end, 0, rows_, 0});
    begin_ = end;
    rows_ = 0;
  }
  std::uint64_t begin_, block_bytes_;
  std::int64_t rows_ = 0, lines_ = 0;
  std::vector<IndexedBlock> blocks_;
};

std::string first_line(const std::filesystem::path& file) {
  LineSource lines{FilePiece(file)};
  std::string_view line;
  return lines.next(line) ? std::string(line) : std::string();
}

/// Of a byte order mark at the front, which belongs to no line.
std::uint64_t bytes_of_mark(const DataFile& file) {
  std::array<char, 3> head{};
  if (file.size() < head.size()) return 0;
  file.read_at(0, std::as_writable_bytes(std::span(head)));
  return head.size() - without_byte_order_mark({head.data(), head.size()}).size();
}

/// Lines without quotes and comments, counted by their ends alone; nothing where there is a quote.
std::optional<std::vector<IndexedBlock>> scan_lines(const DataFile& file, bool fields, std::uint64_t begin,
                                                    std::uint64_t block_bytes) {
  BlockCutter cutter(begin, block_bytes);
  BlockSums sums;
  std::vector<char> chunk(kScanChunk);
  std::uint64_t line = begin == 0 ? bytes_of_mark(file) : begin;
  char last = '\n';
  for (std::uint64_t at = begin; at < file.size();) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(chunk.size(), file.size() - at));
    file.read_at(at, std::as_writable_bytes(std::span(chunk).first(count)));
    if (fields && std::memchr(chunk.data(), '"', count)) return std::nullopt;
    const char* const end = chunk.data() + count;
    const char* summed = chunk.data();
    for (const char* p = chunk.data();;) {
      const char* const found =
          static_cast<const char*>(std::memchr(p, '\n', static_cast<std::size_t>(end - p)));
      if (!found) break;
      ++sums.lines;
      const std::uint64_t here = at + static_cast<std::uint64_t>(found - chunk.data());
      const char before = found > chunk.data() ? found[-1] : last;
      const std::uint64_t length = here - line - (here > line && before == '\r' ? 1 : 0);
      line = here + 1;
      p = found + 1;
      if ((length == 0 && fields) || !cutter.add_record(here + 1)) continue;
      sums.add({summed, p});
      cutter.take_sums(sums);
      summed = p;
    }
    sums.add({summed, end});
    last = end[-1];
    at += count;
  }
  const bool has_last = line < file.size() && (!fields || file.size() - line > (last == '\r' ? 1U : 0U));
  if ((has_last && cutter.add_record(file.size())) || cutter.end(file.size())) cutter.take_sums(sums);
  return cutter.blocks();
}

/// Bytes of a file that were read and not summed yet.
class KeptBytes {
 public:
  void append(std::span<const char> bytes) { kept_.append(bytes.data(), bytes.size()); }
  /// Passes over what is before it.
  void forget_to(std::uint64_t offset) {
    kept_.erase(0, static_cast<std::size_t>(offset - begin_));
    begin_ = offset;
  }
  void sum_to(std::uint64_t offset, BlockSums& sums) {
    const std::span<const char> part = std::span(kept_).first(static_cast<std::size_t>(offset - begin_));
    sums.add(part);
    sums.lines += std::count(part.begin(), part.end(), '\n');
    forget_to(offset);
  }

 private:
  std::string kept_;
  std::uint64_t begin_ = 0;  // of what is kept, in the file
};

/// Whoever has this source may end it before all is summed.
class KeepingSource : public ByteSource {
 public:
  /// `kept` outlives it.
  KeepingSource(std::unique_ptr<ByteSource> source, KeptBytes& kept)
      : source_(std::move(source)), kept_(kept) {}
  std::size_t read(std::span<char> out) override {
    const std::size_t count = source_->read(out);
    kept_.append(out.first(count));
    return count;
  }
  Compression compression() const override { return source_->compression(); }
  std::uint64_t bytes_left_at_most() const override { return source_->bytes_left_at_most(); }

 private:
  const std::unique_ptr<ByteSource> source_;
  KeptBytes& kept_;
};

/// Records of fields, as FieldReader takes them.
std::vector<IndexedBlock> scan_fields(std::unique_ptr<ByteSource> source, const BlockIndexOptions& options,
                                      bool header, std::uint64_t block_bytes, std::uint64_t& header_end) {
  KeptBytes bytes;
  FieldReader reader(std::make_unique<KeepingSource>(std::move(source), bytes), options.separator,
                     options.comment);
  if (header && reader.next()) header_end = reader.offset();
  bytes.forget_to(header_end);
  BlockCutter cutter(header_end, block_bytes);
  BlockSums sums;
  while (reader.next()) {
    if (!cutter.add_record(reader.offset())) continue;
    bytes.sum_to(reader.offset(), sums);
    cutter.take_sums(sums);
  }
  if (cutter.end(reader.offset())) {
    bytes.sum_to(reader.offset(), sums);
    cutter.take_sums(sums);
  }
  return cutter.blocks();
}

std::vector<IndexedBlock> scan_tfrecords(const std::filesystem::path& file, const BlockIndexOptions& options,
                                         std::uint64_t block_bytes) {
  TfRecordReader reader(file);
  BlockCutter cutter(0, block_bytes);
  BlockSums sums;
  for (;;) {
    try {
      if (!reader.next()) break;
    } catch (const DataLoss& e) {
      if (options.max_bad_records == 0) throw;
      if (!reader.can_go_on()) {
        log_warning("{}; the rest of the file is left out", e.message());
        break;
      }
    }
    sums.add(reader.frame());
    ++sums.lines;
    if (cutter.add_record(reader.next_offset())) cutter.take_sums(sums);
  }
  if (cutter.end(reader.next_offset())) cutter.take_sums(sums);
  return cutter.blocks();
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
    std::vector<char> chunk(kScanChunk);
    while (const std::size_t got = source->read(chunk)) out.write(std::as_bytes(std::span(chunk).first(got)));
    out.close();
    rename_path(part, to);
  } catch (...) {
    std::filesystem::remove(part, ignored);
    throw;
  }
  return to;
}

IndexedFile scan(const std::filesystem::path& file, const BlockIndexOptions& options,
                 const std::string& head) {
  const bool text = options.layout != RecordLayout::TfRecord;
  const auto source = open_bytes(file, text ? nullptr : looks_like_tfrecord);
  IndexedFile index;
  index.file = file;
  index.packed = source->compression() != Compression::None;
  const std::uint64_t block_bytes = index.packed ? kLargestPacked : options.block_bytes;
  const bool header = text && options.is_header && options.is_header(head);
  std::uint64_t bytes = 0;
  if (!text) {
    index.blocks = scan_tfrecords(file, options, block_bytes);
  } else if (index.packed && options.layout == RecordLayout::Lines) {
    LineSource lines{FilePiece(file)};
    BlockCutter cutter(0, block_bytes);
    for (std::string_view line; lines.next(line); bytes += line.size() + 1)
      cutter.add_record(bytes + line.size() + 1);
    index.blocks = cutter.finish(bytes);
  } else {
    std::optional<std::vector<IndexedBlock>> blocks;
    const std::shared_ptr<DataFile> plain = index.packed ? nullptr : open_data_file(file);
    if (plain && options.comment.empty()) {
      // A line of names is the first that is not empty; FieldReader finds its end.
      if (header) {
        FieldReader reader(open_bytes(file), options.separator);
        if (reader.next()) index.header_end = reader.offset();
      }
      blocks = scan_lines(*plain, options.layout == RecordLayout::Fields, index.header_end, block_bytes);
    }
    if (!blocks) blocks = scan_fields(open_bytes(file), options, header, block_bytes, index.header_end);
    index.blocks = std::move(*blocks);
  }
  if (index.packed)
    for (IndexedBlock& block : index.blocks)
      block.lines_before = 0, block.crc = 0;  // it is read from the front
  return index;
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
    index = scan(file, options, head);
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
