#include "engine/input/stream/kafka_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <span>
#include <utility>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/input/formats/field_reader.h"
#include "engine/input/formats/tfrecord.h"

namespace braid {
namespace {

constexpr std::string_view kPrefix = "kafka:";

bool take_number(std::string_view& text, std::int64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

bool take(std::string_view& text, std::string_view part) {
  if (!text.starts_with(part)) return false;
  text.remove_prefix(part.size());
  return true;
}

/// Without the line end that a producer may have sent along.
std::string_view without_line_end(std::string_view value) {
  if (value.ends_with('\n')) value.remove_suffix(1);
  if (value.ends_with('\r')) value.remove_suffix(1);
  return value;
}

}  // namespace

std::string text_of(const KafkaSpan& span) {
  return fmt::format("{}{}:{}-{}", kPrefix, text_of(span.partition), span.offsets.begin, span.offsets.end);
}

KafkaSpan kafka_span(const std::string& name) {
  std::string_view text = name;
  KafkaSpan span;
  std::int64_t number = 0;
  const bool begins = take(text, kPrefix);
  const std::size_t topic = text.find('[');
  if (begins && topic != std::string_view::npos) {
    span.partition.topic = text.substr(0, topic);
    text.remove_prefix(topic + 1);
    if (take_number(text, number) && take(text, "]:") && take_number(text, span.offsets.begin) &&
        take(text, "-") && take_number(text, span.offsets.end) && text.empty()) {
      span.partition.number = static_cast<std::int32_t>(number);
      return span;
    }
  }
  throw DataLoss("'" + name + "' are no offsets of Kafka");
}

IndexedFile KafkaRecords::file(const std::string& name) {
  IndexedFile file;
  file.file = name;
  file.blocks = get(name).blocks;
  file.load = [records = shared_from_this(), name] { return records->get(name).bytes; };
  return file;
}

KafkaRecords::Held KafkaRecords::get(const std::string& name) {
  {
    std::lock_guard lock(mu_);
    const auto found = std::ranges::find(held_, name, &Held::name);
    if (found != held_.end()) {
      held_.splice(held_.begin(), held_, found);
      return held_.front();
    }
  }
  Held fetched = fetch(name);
  std::lock_guard lock(mu_);
  if (std::ranges::find(held_, name, &Held::name) != held_.end()) return fetched;
  held_.push_front(fetched);
  bytes_ += fetched.bytes->size();
  while (bytes_ > options_.held_bytes && held_.size() > 1) {
    bytes_ -= held_.back().bytes->size();
    held_.pop_back();
  }
  return fetched;
}

KafkaRecords::Held KafkaRecords::fetch(const std::string& name) {
  const KafkaSpan span = kafka_span(name);
  auto bytes = std::make_shared<std::string>();
  std::vector<IndexedBlock> blocks;
  IndexedBlock block;
  std::int64_t rows = 0;
  const auto cut = [&] {
    if (block.rows == 0) return;
    block.end = bytes->size();
    block.crc = crc32c(std::as_bytes(std::span(*bytes))
                           .subspan(block.begin, static_cast<std::size_t>(block.end - block.begin)));
    blocks.push_back(block);
    block = {.begin = block.end, .lines_before = rows};
  };
  log_->fetch(span.partition, span.offsets,
              [&](std::int64_t offset, std::optional<std::string_view> value) {
                if (!value) return;
                if (options_.layout == RecordLayout::TfRecord) {
                  append_tfrecord(*value, *bytes);
                } else {
                  const std::string_view text = without_line_end(without_byte_order_mark(*value));
                  if (const std::string problem = problem_of(text); !problem.empty())
                    return bad(span, offset, problem);
                  bytes->append(text) += '\n';
                }
                ++block.rows;
                ++rows;
                if (bytes->size() - block.begin >= options_.block_bytes) cut();
              },
              {});
  cut();
  return {name, std::move(bytes), std::move(blocks)};
}

/// Why a value is not one record of text. Records of others stand behind it: it must end where it ends.
std::string KafkaRecords::problem_of(std::string_view value) const {
  if (options_.layout == RecordLayout::Lines) {
    if (value.empty() && options_.empty_is_bad) return "the value is empty";
    return value.find('\n') == std::string_view::npos ? "" : "the value has several lines";
  }
  if (value.find_first_not_of(" \t\r\n") == std::string_view::npos &&
      value.find(options_.separator) == std::string_view::npos)
    return "the value is empty";
  if (!options_.comment.empty() && value.starts_with(options_.comment)) return "the value is a comment";
  if (value.find_first_of("\n\"") == std::string_view::npos) return {};
  FieldReader reader(value, options_.separator, options_.comment);
  if (!reader.next()) return "the value has no record";
  if (!reader.problem().empty()) return reader.problem();
  return reader.next() ? "the value has several records" : "";
}

void KafkaRecords::bad(const KafkaSpan& span, std::int64_t offset, const std::string& problem) {
  const std::string what = fmt::format("{} offset {}: {}", text_of(span.partition), offset, problem);
  std::lock_guard lock(mu_);
  if (!bad_.emplace(span.partition, offset).second) return;
  if (std::ssize(bad_) > options_.max_bad_records)
    throw DataLoss(fmt::format("{} ({} bad record{}, at most {} are skipped: input.max_bad_records)", what,
                               bad_.size(), bad_.size() == 1 ? "" : "s", options_.max_bad_records));
  log_warning("{}: the record is skipped", what);
}

}  // namespace braid
