#include "engine/input/formats/line_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/init.h"
#include "base/log.h"
#include "engine/input/files/byte_source.h"
#include "engine/input/formats/example.h"
#include "engine/input/formats/field_reader.h"

namespace braid {

void BadRecords::add(const std::filesystem::path& file, std::int64_t line, const std::string& what) {
  add("'" + file.string() + "' line " + std::to_string(line) + ": " + what);
}

void BadRecords::add(const std::string& text) {
  if (++count_ > limit_)
    throw DataLoss(text + (limit_ > 0 ? " (bad record " + std::to_string(count_) + ", at most " +
                                            std::to_string(limit_) + " are skipped)"
                                      : ""));
  constexpr std::int64_t kLogged = 5;
  if (count_ <= kLogged) log_warning("skipped: {}", text);
}

LineSource::LineSource(const FilePiece& piece) : source_(open_piece(piece)) {
  more();
  text_ = without_byte_order_mark(text_);
}

LineSource::~LineSource() = default;

bool LineSource::more() {
  if (!source_) return false;
  constexpr std::size_t kLeast = std::size_t{1} << 18;
  const std::size_t kept = text_.size(), step = std::max(kLeast, kept);
  if (kept > 0) std::copy(text_.begin(), text_.end(), buffer_.begin());
  buffer_.resize(kept + step);
  const std::size_t got = source_->read(std::span(buffer_).subspan(kept));
  if (got < step) source_.reset();
  text_ = {buffer_.data(), kept + got};
  return got > 0;
}

bool LineSource::next(std::string_view& line) {
  std::size_t end = text_.find('\n');
  while (end == std::string_view::npos && more()) end = text_.find('\n');
  if (text_.empty()) return false;
  end = std::min(end, text_.size());
  line = text_.substr(0, end);
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  text_.remove_prefix(std::min(end + 1, text_.size()));
  ++number_;
  return true;
}

void RowStream::begin(std::vector<FilePiece>) { throw Internal("these files are not read in pieces"); }

std::string first_text(const ExampleReader& example, const std::string& name) {
  const Feature* feature = example.find(name);
  if (!feature || feature->count == 0) return {};
  if (feature->kind == FeatureKind::Bytes) return std::string(example.bytes(*feature)[0]);
  if (feature->kind == FeatureKind::Int64) return std::to_string(example.ints(*feature)[0]);
  return fmt::format("{}", example.floats(*feature)[0]);
}

void RowBook::add_group(std::string_view text) {
  groups_.push_back(static_cast<std::int64_t>(stable_hash(text)));
}

void RowBook::add_bad(std::int64_t row) {
  bad_rows_.push_back(row);
  if (has_keys()) keys_.emplace_back();
  if (has_groups()) groups_.push_back(0);
}

std::shared_ptr<Table> RowBook::finish(std::shared_ptr<Table> table) {
  table->rows_of_all = shard_.count();
  table->keys = std::exchange(keys_, {});
  table->bad_rows = std::exchange(bad_rows_, {});
  if (has_groups())
    table->columns.push_back(
        {kGroupColumn, Tensor::from<std::int64_t>(Shape{table->rows}, std::exchange(groups_, {}))});
  return table;
}

void refuse_column(const std::string& name, const std::filesystem::path& file,
                   const std::vector<std::string>& known) {
  std::string names;
  for (const std::string& each : known) names += (names.empty() ? "" : ", ") + each;
  throw InvalidArgument("'" + file.string() + "' has no column '" + name + "'; its columns: " + names);
}

}  // namespace braid
