#include "engine/input/formats/block_scan.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/input/formats/field_reader.h"
#include "engine/input/formats/line_reader.h"
#include "engine/input/formats/tfrecord.h"

namespace braid {
namespace {

constexpr std::size_t kScanChunk = std::size_t{1} << 20;
/// Of an unpacked file that is one block.
constexpr std::uint64_t kLargestPacked = std::uint64_t{32} << 20;

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

}  // namespace

IndexedFile scan_blocks(const std::filesystem::path& file, const BlockIndexOptions& options,
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

}  // namespace braid
