// CSV and TSV by a schema, and plain text: a line is a record of one field.
#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/input/files/byte_source.h"
#include "engine/input/formats/field_reader.h"
#include "engine/input/formats/foreign.h"
#include "engine/input/formats/line_reader.h"
#include "engine/input/formats/readers.h"
#include "engine/input/formats/sniff.h"

namespace braid {
namespace {

constexpr std::size_t kNone = SIZE_MAX;

/// Which field of a line each column of the schema is.
struct Fields {
  std::vector<std::size_t> of_column;
  std::size_t count = 0;  // of a line
  std::size_t key = kNone, group = kNone;
  std::vector<std::string> names;  // of the fields
};

class CsvStream : public RowStream {
 public:
  CsvStream(const std::vector<std::filesystem::path>& files, CsvOptions options)
      : pieces_(whole_files(files)),
        options_(std::move(options)),
        builder_(options_.columns),
        book_(options_.read) {
    const auto& ignored = options_.read.ignored;
    for (const ColumnSpec& column : builder_.columns())
      ignored_.push_back(column.kind != ColumnKind::Skip &&
                         std::find(ignored.begin(), ignored.end(), output_name(column)) != ignored.end());
  }

  std::shared_ptr<Table> next(std::int64_t most) override {
    while (builder_.rows() < most) {
      if (!record_ && !open_next()) break;
      if (book_.ended() || !record_->next()) {
        record_.reset();
        continue;
      }
      if (book_.takes_next()) add_record();
    }
    return book_.finish(builder_.finish(book_.bad().count()));
  }

  void begin(std::vector<FilePiece> pieces) override {
    pieces_ = std::move(pieces);
    opened_ = 0;
    record_.reset();
  }

 private:
  const std::filesystem::path& file() const { return pieces_[opened_ - 1].file; }

  bool open_next() {
    if (opened_ == pieces_.size()) return false;
    book_.begin(pieces_[opened_++]);
    record_.emplace(open_piece(pieces_[opened_ - 1]), options_.separator, options_.comment);
    fields_ = in_order(false);
    without_ignored_ = in_order(true);
    if (options_.header && record_->next()) take_header();
    find_key_and_group();
    return true;
  }

  /// The fields of a file without a header, with or without the columns that are ignored.
  Fields in_order(bool without_ignored) const {
    Fields fields;
    for (std::size_t c = 0; c < builder_.columns().size(); ++c) {
      const ColumnSpec& column = builder_.columns()[c];
      const std::string name = field_of(column);
      if ((without_ignored && ignored_[c]) || name.empty()) {
        fields.of_column.push_back(kNone);
        continue;
      }
      const auto known = std::find(fields.names.begin(), fields.names.end(), name);
      if (!column.field.empty() && known != fields.names.end()) {  // that of a column before it
        fields.of_column.push_back(static_cast<std::size_t>(known - fields.names.begin()));
        continue;
      }
      fields.of_column.push_back(fields.count++);
      fields.names.push_back(name);
    }
    return fields;
  }

  /// Columns are found by the names of the header; where it has none of them, they are in the order of the
  /// schema. Throws: InvalidArgument for a header with some of them only, or with one of them twice.
  void take_header() {
    const std::vector<std::string> header(record_->fields().begin(), record_->fields().end());
    const std::string where = "'" + file().string() + "' line " + std::to_string(record_->line()) + ": ";
    const auto& columns = builder_.columns();
    Fields fields{std::vector<std::size_t>(columns.size(), kNone), header.size(), kNone, kNone, header};
    std::string missing;
    bool any = false;
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const std::string name = field_of(columns[c]);
      if (columns[c].kind == ColumnKind::Skip || name.empty()) continue;
      const auto found = std::find(header.begin(), header.end(), name);
      if (found == header.end()) {
        if (!ignored_[c] && missing.empty()) missing = name;
        continue;
      }
      if (std::find(found + 1, header.end(), name) != header.end())
        throw InvalidArgument(where + "the header has two columns '" + name + "'");
      any = true;
      fields.of_column[c] = static_cast<std::size_t>(found - header.begin());
    }
    if (!any) {  // other names for the same columns
      const bool wrong_count = header.size() != fields_.count && header.size() != without_ignored_.count;
      if (const std::string why = explanation(wrong_count); !why.empty())
        throw DataLoss(where + "it has none of the schema's names: " + why);
      if (pieces_[opened_ - 1].is_whole())
        log_warning(
            "{}it has none of the schema's names, and is skipped as a header; columns are those of the "
            "schema in their order",
            where);
      if (header.size() == fields_.count) fields_.names = header;
      if (header.size() == without_ignored_.count) without_ignored_.names = header;
      return;
    }
    if (!missing.empty()) {
      if (const std::string why = explanation(false); !why.empty()) throw DataLoss(where + why);
      std::string names;
      for (const std::string& name : header) names.append(names.empty() ? "" : ", ").append(name);
      throw InvalidArgument(where + "the header has no column '" + missing + "', but " + names);
    }
    fields_ = without_ignored_ = std::move(fields);
  }

  /// What the file is, where its first records are none of the schema's; empty where that is not known.
  std::string explanation(bool wrong_count) const {
    const FilePiece& piece = pieces_[opened_ - 1];
    if (piece.begin > 0 || piece.file == "-") return {};
    const std::string head = read_head(piece);
    std::string why = foreign_kind(head);
    if (why.empty() && head.find('\0') != std::string::npos) why = "the file is binary";
    if (why.empty() && wrong_count)
      why = other_separator(head, options_.comment, options_.separator, fields_.count);
    return why;
  }

  /// A column that is ignored is not in every record; one that is in none is refused.
  void find_key_and_group() {
    const auto place = [&](const std::vector<std::string>& names, const std::string& name) {
      const auto found = std::find(names.begin(), names.end(), name);
      if (name.empty() || found == names.end()) return kNone;
      return static_cast<std::size_t>(found - names.begin());
    };
    for (const std::string& name : {options_.read.key_column, options_.read.group_column})
      if (!name.empty() && place(fields_.names, name) == kNone) refuse_column(name, file(), fields_.names);
    for (Fields* const each : {&fields_, &without_ignored_}) {
      each->key = place(each->names, options_.read.key_column);
      each->group = place(each->names, options_.read.group_column);
    }
  }

  void add_record() {
    const auto& texts = record_->fields();
    const Fields& fields = texts.size() == without_ignored_.count ? without_ignored_ : fields_;
    if (const std::string problem = problem_of(fields); !problem.empty()) {
      builder_.drop_row();
      const std::string why = record_->line() <= 2 ? explanation(texts.size() != fields.count) : "";
      book_.bad().add(file(), book_.line(record_->line()), problem + (why.empty() ? "" : ": " + why));
      if (!options_.read.keep_bad_records) return;
      book_.add_bad(builder_.rows());
      builder_.blank_row();
      return;
    }
    builder_.end_row();
    if (fields.key != kNone) book_.add_key(texts[fields.key]);
    if (fields.group != kNone) book_.add_group(texts[fields.group]);
  }

  /// Appends the record; returns what is wrong with it, or an empty text.
  std::string problem_of(const Fields& fields) {
    if (!record_->problem().empty()) return record_->problem();
    const auto& texts = record_->fields();
    const auto& columns = builder_.columns();
    for (const auto& [name, place] : {std::pair{&options_.read.key_column, fields.key},
                                      std::pair{&options_.read.group_column, fields.group}})
      if (!name->empty() && place == kNone) return "there is no column '" + *name + "'";
    if (texts.size() != fields.count)
      return "expected " + std::to_string(fields.count) + " fields, got " + std::to_string(texts.size());
    for (std::size_t c = 0; c < columns.size(); ++c) {
      if (columns[c].kind == ColumnKind::Skip) continue;
      if (ignored_[c]) {
        builder_.add_blank(c);
        continue;
      }
      const std::size_t field = fields.of_column[c];
      const std::string_view text = field == kNone ? std::string_view() : texts[field];  // none: a cross
      if (const std::string problem = builder_.add_text(c, text); !problem.empty())
        return "column " + std::to_string(field + 1) + " (" + columns[c].name + "): " + problem;
    }
    return {};
  }

  std::vector<FilePiece> pieces_;
  // Set once.
  const CsvOptions options_;
  std::vector<bool> ignored_;  // by column

  TableBuilder builder_;
  RowBook book_;
  std::size_t opened_ = 0;
  Fields fields_, without_ignored_;    // of the open file
  std::optional<FieldReader> record_;  // of the open file
};

class TextStream : public RowStream {
 public:
  TextStream(const std::vector<std::filesystem::path>& files, TextOptions options)
      : pieces_(whole_files(files)), builder_(std::move(options.columns)), book_(options.read) {
    for (const ColumnSpec& column : builder_.columns()) {
      if (const std::string field = field_of(column); !field.empty() && field != "line")
        throw InvalidArgument("text: a record has the one field 'line', the schema names '" + field + "'");
      const auto& ignored = options.read.ignored;
      ignored_.push_back(std::find(ignored.begin(), ignored.end(), output_name(column)) != ignored.end());
    }
    for (const std::string& name : {options.read.key_column, options.read.group_column})
      if (!name.empty() && name != "line" && !files.empty()) refuse_column(name, files[0], {"line"});
  }

  std::shared_ptr<Table> next(std::int64_t most) override {
    std::string_view line;
    while (builder_.rows() < most) {
      if (!lines_) {
        if (opened_ == pieces_.size()) break;
        book_.begin(pieces_[opened_]);
        lines_.emplace(pieces_[opened_++]);
      }
      if (book_.ended() || !lines_->next(line))
        lines_.reset();
      else if (book_.takes_next())
        add_line(line);
    }
    return book_.finish(builder_.finish(book_.bad().count()));
  }

  void begin(std::vector<FilePiece> pieces) override {
    pieces_ = std::move(pieces);
    opened_ = 0;
    lines_.reset();
  }

 private:
  void add_line(std::string_view line) {
    std::string problem;
    for (std::size_t c = 0; c < builder_.columns().size() && problem.empty(); ++c) {
      if (ignored_[c])
        builder_.add_blank(c);
      else
        problem = builder_.add_text(c, line);
    }
    if (!problem.empty()) {
      builder_.drop_row();
      book_.bad().add(pieces_[opened_ - 1].file, book_.line(lines_->number()), problem);
      if (!book_.options().keep_bad_records) return;
      book_.add_bad(builder_.rows());
      builder_.blank_row();
      return;
    }
    builder_.end_row();
    if (book_.has_keys()) book_.add_key(line);
    if (book_.has_groups()) book_.add_group(line);
  }

  std::vector<FilePiece> pieces_;
  TableBuilder builder_;
  RowBook book_;
  std::vector<bool> ignored_;  // by column
  std::size_t opened_ = 0;
  std::optional<LineSource> lines_;  // of the open file
};

}  // namespace

std::unique_ptr<RowStream> stream_csv(std::vector<std::filesystem::path> files, CsvOptions options) {
  return std::make_unique<CsvStream>(std::move(files), std::move(options));
}

std::shared_ptr<const Table> read_csv(const std::vector<std::filesystem::path>& files,
                                      const CsvOptions& options) {
  return CsvStream(files, options).next(kAllRows);
}

std::unique_ptr<RowStream> stream_text_lines(std::vector<std::filesystem::path> files, TextOptions options) {
  return std::make_unique<TextStream>(std::move(files), std::move(options));
}

std::shared_ptr<const Table> read_text_lines(const std::vector<std::filesystem::path>& files,
                                             const TextOptions& options) {
  return TextStream(files, options).next(kAllRows);
}

}  // namespace braid
