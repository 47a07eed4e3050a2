#include "engine/ops/text/decode_csv.h"

#include <fmt/format.h>

#include <string>

#include "base/error.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/parse_number.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

using Strings = std::vector<std::string>;

/// The fields of a record (RFC 4180). Throws: InvalidArgument for quotes that do not fit.
Strings csv_fields(std::string_view record, char delimiter, bool quotes) {
  if (record.find_first_not_of("\r\n") == std::string_view::npos) return {};
  Strings fields(1);
  bool quoted = false, was_quoted = false;
  for (std::size_t i = 0; i < record.size(); ++i) {
    const char c = record[i];
    if (quoted) {
      if (c != '"') {
        fields.back() += c;
      } else if (i + 1 < record.size() && record[i + 1] == '"') {
        fields.back() += record[++i];
      } else {
        quoted = false;
      }
    } else if (c == delimiter) {
      fields.emplace_back();
      was_quoted = false;
    } else if (quotes && c == '"' && fields.back().empty() && !was_quoted) {
      quoted = was_quoted = true;
    } else if ((quotes && c == '"') || was_quoted) {
      throw InvalidArgument(
          fmt::format("a quote in the middle of field {} of '{}'", fields.size() - 1, record));
    } else if (c == '\n' || c == '\r') {
      if (fields.back().empty() && !was_quoted) continue;
      throw InvalidArgument(
          fmt::format("a line break outside of quotes, in field {} of '{}'", fields.size() - 1, record));
    } else {
      fields.back() += c;
    }
  }
  if (quoted) throw InvalidArgument(fmt::format("an open quote in '{}'", record));
  return fields;
}

template <class T>
T csv_number(const std::string& text, const std::string& place) {
  T value{};
  if (!parse_number(text, value))
    throw InvalidArgument(fmt::format("{}: '{}' is no {}", place, text, dtype_name(dtype_of<T>)));
  return value;
}

}  // namespace

void infer_csv(InferContext& c) {
  require_dtype(c, 0, {DType::String});
  if (c.attr("field_delim", std::string(",")).size() != 1) c.fail("field_delim must be one character");
  for (int i = 1; i < c.inputs(); ++i) {
    require_dtype(c, i, {DType::Float32, DType::Float64, DType::Int32, DType::Int64, DType::String});
    c.output(c.dtype(i), c.shape(0));
  }
}

std::vector<Tensor> decode_csv(const Node& node, std::span<const Tensor* const> inputs) {
  const Tensor& records = *inputs[0];
  const char delimiter = node.attrs.get("field_delim", std::string(","))[0];
  const bool quotes = node.attrs.get("use_quote_delim", true);
  const std::string missing = node.attrs.get("na_value", std::string());
  const auto selected = node.attrs.get("select_cols", std::vector<std::int64_t>{});
  const std::size_t columns = inputs.size() - 1;
  if (!selected.empty() && selected.size() != columns)
    throw InvalidArgument(fmt::format("{} columns are selected, {} have defaults", selected.size(), columns));
  std::vector<Strings> texts(columns);
  std::vector<Tensor> outputs;
  for (std::size_t c = 0; c < columns; ++c)
    outputs.push_back(
        inputs[c + 1]->dtype() == DType::String ? Tensor() : Tensor(inputs[c + 1]->dtype(), records.shape()));
  for (std::int64_t r = 0; r < records.elements(); ++r) {
    const Strings fields = csv_fields(records.string_at(r), delimiter, quotes);
    if (selected.empty() && fields.size() != columns)
      throw InvalidArgument(fmt::format("record {} has {} fields, expected {}", r, fields.size(), columns));
    for (std::size_t c = 0; c < columns; ++c) {
      const std::size_t at = selected.empty() ? c : static_cast<std::size_t>(selected[c]);
      const std::string place = fmt::format("record {}, field {}", r, at);
      if (at >= fields.size()) throw InvalidArgument(place + ": the record has no such field");
      const Tensor& fallback = *inputs[c + 1];
      const bool absent = fields[at].empty() || fields[at] == missing;
      if (absent && fallback.elements() == 0) throw InvalidArgument(place + ": it is required, but empty");
      if (fallback.dtype() == DType::String) {
        texts[c].emplace_back(absent ? std::string(fallback.string_at(0)) : fields[at]);
        continue;
      }
      with_number("DecodeCSV", fallback.dtype(), [&]<class T>() {
        outputs[c].data<T>()[static_cast<std::size_t>(r)] =
            absent ? fallback.data<T>()[0] : csv_number<T>(fields[at], place);
      });
    }
  }
  for (std::size_t c = 0; c < columns; ++c)
    if (!outputs[c].defined()) outputs[c] = Tensor::strings(records.shape(), texts[c]);
  return outputs;
}

}  // namespace braid
