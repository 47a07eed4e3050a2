#include "tests/integration/drawn_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <random>

namespace braid::integration {
namespace {

/// As RFC 4180 has it.
std::string quoted_field(const std::string& field) {
  std::string text = "\"";
  for (const char c : field) text += c == '"' ? "\"\"" : std::string(1, c);
  return text + "\"";
}

class TableDraw {
 public:
  explicit TableDraw(std::uint64_t seed) : random_(seed) {}

  DrawnData data() {
    data_.model = one_of({"wide_deep", "deepfm", "dcn_v2"});
    for (int n = below(3) + 1; n > 0; --n) numeric(fmt::format("n{}", n));
    add("c0", "kind: CATEGORICAL buckets: 1000", [this] { return word(); });
    singles_.emplace_back("c0");
    for (int n = below(3) + 1; n > 0; --n) categorical(fmt::format("c{}", n));
    if (singles_.size() > 1 && below(2) == 0)
      data_.columns += fmt::format(
          "  columns {{ name: \"x\" kind: CATEGORICAL buckets: 97 cross: \"{}\" cross: \"{}\" }}\n",
          singles_[0], singles_[1]);
    if (below(2) == 0)
      add("y", "kind: LABEL", [this] { return one_of({"0", "1", "0.25"}); });
    else
      add("y", "kind: LABEL positive: \"yes\"", [this] { return one_of({"yes", "no", "maybe"}); });
    if (below(3) == 0) add("w", "kind: WEIGHT", [this] { return one_of({"0", "1", "2.5"}); });
    data_.rows = one_of_numbers({97, 300, 700});
    data_.batch = one_of_numbers({5, 32, 64});
    data_.carry = below(2) == 0;
    data_.shuffle = below(4) > 0;
    write_files();
    return data_;
  }

 private:
  int below(int bound) { return std::uniform_int_distribution<>(0, bound - 1)(random_); }
  int one_of_numbers(const std::vector<int>& choices) {
    return choices[static_cast<std::size_t>(below(static_cast<int>(choices.size())))];
  }
  std::string one_of(const std::vector<std::string>& choices) {
    return choices[static_cast<std::size_t>(below(static_cast<int>(choices.size())))];
  }
  std::string word() {
    return one_of({"Rome", "São Paulo", "東京", "New \"York\"", "a,b", "x|y", "", "?", "NaN", "-5", "007",
                   "9223372036854775807", "1e5", " lead", "it's", "#no", "two\nlines", "a\tb"});
  }
  std::string list(int most) {
    std::string text;
    for (int n = below(most + 1); n > 0; --n)
      text += (text.empty() ? "" : "|") + one_of({"a", "b", "cc", "é"});
    return text;
  }

  void add(const std::string& name, const std::string& column, std::function<std::string()> value) {
    data_.columns += fmt::format("  columns {{ name: \"{}\" {} }}\n", name, column);
    names_.push_back(name);
    values_.push_back(std::move(value));
  }

  /// Numbers that floats hold, so that they are the same from every format.
  void numeric(const std::string& name) {
    const int kind = below(4);
    if (kind == 0)
      add(name, "kind: NUMERIC shift: 3 scale: 10",
          [this] { return fmt::format("{}.{}", below(50), 25 * below(4)); });
    if (kind == 1)
      add(name, "kind: NUMERIC log1p: true", [this] { return std::to_string(below(100000) - 3); });
    if (kind == 2)
      add(name, "kind: NUMERIC missing: -1.5", [this] { return one_of({"", "?", "3", "0.25"}); });
    if (kind == 3)
      add(name, "kind: NUMERIC time_part: SECONDS scale: 1e9", [this] {
        return one_of({"2026-03-01", "2026-03-01T12:30:00.5+01:00", ""});
      });
  }

  void categorical(const std::string& name) {
    const int kind = below(6);
    if (kind < 2) singles_.push_back(name);
    if (kind == 0) add(name, "kind: CATEGORICAL buckets: 7", [this] { return word(); });
    if (kind == 1)
      add(name, "kind: CATEGORICAL vocabulary: \"Rome\" vocabulary: \"007\" buckets: 3",
          [this] { return word(); });
    if (kind == 2) add(name, "kind: CATEGORICAL buckets: 50 ragged: true", [this] { return list(7); });
    if (kind == 3) add(name, "kind: CATEGORICAL buckets: 50 length: 3", [this] { return list(5); });
    if (kind == 4)
      add(name, "kind: CATEGORICAL borders: 18 borders: 30.5 borders: 65", [this] {
        return one_of({"", "17.9", "18", "30.5", "99", "-4"});
      });
    if (kind == 5)
      add(name, "kind: CATEGORICAL time_part: HOUR", [this] {
        return one_of({"2026-03-01 12:30", "2026-12-31T23:59:59", ""});
      });
  }

  void write_files() {
    std::string header;
    for (const std::string& name : names_) header += (header.empty() ? "" : ",") + name;
    const int files = one_of_numbers({1, 1, 3}), each = (data_.rows + files - 1) / files;
    for (int f = 0; f < files; ++f) {
      const std::string end = one_of({"\n", "\r\n"});
      std::string text = header + end;
      for (int r = f * each; r < std::min(data_.rows, (f + 1) * each); ++r)
        for (std::size_t c = 0; c < values_.size(); ++c)
          text += quoted_field(values_[c]()) + (c + 1 < values_.size() ? "," : end);
      data_.files.push_back(std::move(text));
    }
  }

  std::mt19937_64 random_;
  DrawnData data_;
  std::vector<std::string> names_;
  std::vector<std::function<std::string()>> values_;
  std::vector<std::string> singles_;  // columns of one id a row, that a cross may name
};

}  // namespace

std::string DrawnData::text() const {
  return fmt::format("{} rows in {} files, batches of {}, carry {}, shuffle {}, {}\n{}", rows, files.size(),
                     batch, carry, shuffle, model, columns);
}

std::string DrawnData::job(const std::string& format, const std::vector<std::string>& names,
                           const std::string& more) const {
  std::string input;
  for (const std::string& name : names) input += fmt::format("  train_files: \"{}\"\n", name);
  return fmt::format(
      "name: \"drawn\"\nseed: 3\nepochs: 2\nmodel {{ name: \"{}\" hidden: 8 embedding_dim: 4 }}\n"
      "input {{\n  format: {}\n{}  {}\n  global_batch_size: {}\n  carry_remainder: {}\n  shuffle: {}\n  "
      "{}\n{}}}\n"
      "optimizer {{ kind: ADAGRAD learning_rate: 0.02 initial_accumulator: 0.1 }}\n"
      "evaluation {{ enabled: false }}\nstreams {{ policy: NONE count: 1 }}\n",
      model, format, input, format == "CSV" ? "csv { header: true }" : "", batch, carry, shuffle, more,
      columns);
}

DrawnData draw_data(std::uint64_t seed) { return TableDraw(seed).data(); }

}  // namespace braid::integration
