// The text of a region's program: read, and written.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <iterator>
#include <optional>

#include "base/error.h"
#include "engine/fusion/region.h"

namespace braid::fusion {
namespace {

constexpr std::array<std::string_view, 3> kExtents = {"one", "row", "full"};
constexpr std::array<std::string_view, 4> kReductions = {"sum", "prod", "max", "min"};

template <std::size_t kCount>
std::optional<int> index_of(const std::array<std::string_view, kCount>& names, std::string_view name) {
  const auto at = std::find(names.begin(), names.end(), name);
  if (at == names.end()) return std::nullopt;
  return static_cast<int>(at - names.begin());
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(at), text.size());
    if (end > 0) parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

/// Reads a region line by line; every complaint names the line.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Region read() {
    bool first = true;
    for (const std::string_view line : split(text_, '\n')) {
      line_ = line;
      words_ = split(line, ' ');
      if (words_.empty()) continue;
      if (first != (words_[0] == "region")) fail("the first line, and no other, is 'region ROWS COLUMNS'");
      first = false;
      read_line();
    }
    if (first) fail("there is no region");
    return std::move(region_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw InvalidArgument(fmt::format("fused region, line '{}': {}", line_, what));
  }
  void need(std::size_t words) const {
    if (words_.size() < words) fail("words are missing");
  }

  template <class T>
  T number(std::string_view word, int base = 10) const {
    T value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, base);
    if (error != std::errc() || end != word.data() + word.size())
      fail(fmt::format("'{}' is no number", word));
    return value;
  }
  std::int64_t size(std::string_view word) const {
    const auto value = number<std::int64_t>(word);
    if (value < 0 || value > (std::int64_t{1} << 48)) fail(fmt::format("size {} is out of range", value));
    return value;
  }
  DType dtype(std::string_view word) const {
    const auto type = dtype_from_name(word);
    if (!type || dtype_size(*type) == 0) fail(fmt::format("'{}' is no type of elements", word));
    return *type;
  }
  Extent extent(std::string_view word) const {
    const auto index = index_of(kExtents, word);
    if (!index) fail(fmt::format("'{}' is not one, row or full", word));
    return static_cast<Extent>(*index);
  }
  int value(std::string_view word) const {
    const int id = number<int>(word);
    if (id < 0 || id >= region_.values()) fail(fmt::format("there is no value {} before it", id));
    if (words_[0] != "out" && words_[0] != "also" && region_.extent_of(id) >= Extent::Column)
      fail("sums of columns and of pieces are outputs only");
    return id;
  }

  void read_line() {
    const std::string_view kind = words_[0];
    if (kind == "region") {
      need(3);
      region_.rows = size(words_[1]);
      region_.columns = size(words_[2]);
    } else if (kind == "in") {
      read_input();
    } else if (kind == "out" || kind == "also") {
      read_output();
    } else {
      read_step(kind);
    }
  }

  void read_input() {
    need(3);
    if (!region_.steps.empty()) fail("inputs come before steps");
    Region::Input input{dtype(words_[1]), extent(words_[2]), {}};
    if (words_.size() > 5 && words_[words_.size() - 3] == "by") {
      input.by = number<int>(words_[words_.size() - 2]);
      input.of = size(words_.back());
      words_.resize(words_.size() - 3);
    }
    if (words_.back()[0] == '+') {
      input.offset = size(words_.back().substr(1));
      words_.pop_back();
    }
    std::int64_t elements = 1;
    for (const std::string_view axis :
         words_.size() > 3 ? split(words_[3], ',') : std::vector<std::string_view>{}) {
      const auto parts = split(axis, ':');
      if (parts.size() != 2) fail("an axis is SIZE:STRIDE");
      input.axes.push_back({size(parts[0]), size(parts[1])});
      elements *= input.axes.back().size;
    }
    if (elements != region_.elements(input.extent))
      fail(fmt::format("the axes have {} elements, the extent {}", elements, region_.elements(input.extent)));
    if (input.by >= 0 && (input.offset != 0 || input.axes != contiguous_axes(elements) ||
                          input.extent != Extent::Full || !picks_rows(input.by)))
      fail("rows are picked of a tensor as it lies, by a row of integers before it");
    region_.inputs.push_back(std::move(input));
  }

  bool picks_rows(int input) const {
    if (input >= static_cast<int>(region_.inputs.size())) return false;
    const Region::Input& by = region_.inputs[static_cast<std::size_t>(input)];
    return by.extent == Extent::Row && by.by < 0 && (by.dtype == DType::Int32 || by.dtype == DType::Int64);
  }

  void read_output() {
    need(3);
    Region::Output output{value(words_[1]), {}};
    if (words_[0] == "also") {
      if (region_.outputs.empty() || !region_.outputs.back().is_part) fail("there is no part before it");
      output.shape = region_.outputs.back().shape;
      output.width = region_.outputs.back().width;
      output.is_of_previous = true;
      output.offset = size(words_[2]);
    } else {
      std::vector<std::int64_t> dims;
      if (words_[2] != "-")
        for (const std::string_view dim : split(words_[2], ',')) dims.push_back(size(dim));
      output.shape = Shape(std::move(dims));
      if (words_.size() > 3) {
        const auto parts = split(words_[3], ':');
        if (parts.size() != 2) fail("a part is OFFSET:WIDTH");
        output.offset = size(parts[0]);
        output.width = size(parts[1]);
      }
    }
    output.is_part = words_[0] == "also" || words_.size() > 3;
    check_output(output);
    region_.outputs.push_back(std::move(output));
  }

  void check_output(const Region::Output& output) const {
    if (region_.is_input(output.value)) fail("an input is no output");
    if (region_.extent_of(output.value) == Extent::One) fail("a value of one element is no output");
    for (const Region::Output& other : region_.outputs)
      if (other.value == output.value) fail("the value is an output already");
    if (!output.is_part) {
      if (output.shape.elements() != region_.elements(region_.extent_of(output.value)))
        fail("the shape does not have the value's number of elements");
      return;
    }
    if (region_.extent_of(output.value) != Extent::Full) fail("parts are of Full values");
    if (output.offset + region_.columns > output.width ||
        output.shape.elements() != region_.rows * output.width)
      fail("the part does not lie within the tensor");
    if (output.is_of_previous &&
        region_.dtype_of(region_.outputs.back().value) != region_.dtype_of(output.value))
      fail("parts of a tensor have one type");
  }

  void read_step(std::string_view kind) {
    need(3);
    Region::Step step;
    step.dtype = dtype(words_[1]);
    if (kind == "const") {
      step.kind = Region::Kind::Constant;
      step.extent = Extent::One;
      step.bits = number<std::uint64_t>(words_[2], 16);
    } else if (kind == "cast") {
      need(4);
      step.kind = Region::Kind::Cast;
      step.extent = extent(words_[2]);
      step.operands = {value(words_[3])};
    } else if (kind == "reduce") {
      need(4);
      const auto reduction = index_of(kReductions, words_[2]);
      if (!reduction) fail(fmt::format("'{}' is no reduction", words_[2]));
      step.kind = Region::Kind::Reduce;
      step.extent = Extent::Row;
      step.reduction = static_cast<RowReduction>(*reduction);
      step.operands = {value(words_[3])};
      if (region_.extent_of(step.operands[0]) != Extent::Full) fail("rows of a Full value are reduced");
      if (region_.dtype_of(step.operands[0]) != step.dtype) fail("a reduction keeps the type");
    } else if (kind == "columns") {
      step.kind = Region::Kind::Columns;
      step.extent = Extent::Column;
      step.operands = {value(words_[2])};
      if (region_.is_input(step.operands[0]) || region_.extent_of(step.operands[0]) != Extent::Full)
        fail("columns of a Full step are summed");
      if (region_.dtype_of(step.operands[0]) != step.dtype) fail("a sum keeps the type");
      if (!is_floating(step.dtype)) fail("columns of floats are summed");
      if (region_.rows == 0) fail("there are no rows to sum");
    } else if (kind == "scan") {
      read_scan(step);
    } else if (kind == "uniform") {
      need(5);
      step.kind = Region::Kind::Uniform;
      step.extent = extent(words_[2]);
      step.bits = number<std::uint64_t>(words_[3], 16);
      step.salt = number<std::uint64_t>(words_[4], 16);
      if (step.dtype != DType::Float32) fail("random numbers are float32");
      if (step.extent == Extent::One) fail("each place, or row, draws its number");
    } else if (kind == "apply") {
      read_apply(step);
    } else {
      fail(fmt::format("'{}' is unknown", kind));
    }
    if (step.kind != Region::Kind::Reduce && step.extent < Extent::Column)
      for (const int operand : step.operands)
        if (region_.extent_of(operand) > step.extent) fail("an operand is larger than the result");
    if (region_.scan() && (step.kind == Region::Kind::Reduce || step.kind == Region::Kind::Columns))
      fail("rows and columns are not added up beside scans");
    region_.steps.push_back(std::move(step));
  }

  void read_scan(Region::Step& step) {
    need(5);
    step.kind = Region::Kind::Scan;
    const auto reduction = index_of(kReductions, words_[2]);
    const bool last = words_.back() == "last";
    if (!reduction || (*reduction > 1 && !last)) fail(fmt::format("'{}' is neither sum nor prod", words_[2]));
    step.reduction = static_cast<RowReduction>(*reduction);
    step.operands = {value(words_[3])};
    step.length = size(words_[4]);
    for (std::size_t w = 5; w < words_.size(); ++w) {
      if (words_[w] == "reverse")
        step.reverse = true;
      else if (words_[w] == "exclusive")
        step.exclusive = true;
      else if (words_[w] == "last")
        step.last = true;
      else
        fail(fmt::format("'{}' is neither reverse nor exclusive", words_[w]));
    }
    step.extent = step.last ? Extent::Piece : Extent::Full;
    if (step.last && (step.reverse || step.exclusive)) fail("all rows of a piece have no direction");
    if (region_.is_input(step.operands[0]) || region_.extent_of(step.operands[0]) != Extent::Full)
      fail("what is scanned is a Full step");
    if (region_.dtype_of(step.operands[0]) != step.dtype) fail("a scan keeps the type");
    if (step.length < 1 || region_.rows % step.length != 0) fail("the rows are not whole pieces");
    if (region_.reduces() || region_.sums_columns()) fail("rows and columns are not added up beside scans");
    const Region::Step* other = region_.scan();
    if (other &&
        (other->length != step.length || (!other->last && !step.last && other->reverse != step.reverse)))
      fail("scans have one length and one direction");
  }

  void read_apply(Region::Step& step) {
    need(5);
    step.extent = extent(words_[2]);
    step.op = words_[3];
    for (std::size_t w = 4; w < words_.size(); ++w) {
      const std::size_t equals = words_[w].find('=');
      if (equals == std::string_view::npos) {
        step.operands.push_back(value(words_[w]));
        continue;
      }
      const auto bits = number<std::uint64_t>(words_[w].substr(equals + 1), 16);
      double parameter = 0;
      std::memcpy(&parameter, &bits, sizeof bits);
      step.parameters[std::string(words_[w].substr(0, equals))] = parameter;
    }
  }

  std::string_view text_, line_;
  std::vector<std::string_view> words_;
  Region region_;
};

}  // namespace

std::string_view reduction_name(RowReduction reduction) {
  return kReductions[static_cast<std::size_t>(reduction)];
}

std::string Region::to_text() const {
  std::string text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "region {} {}\n", rows, columns);
  for (const Input& input : inputs) {
    fmt::format_to(out, "in {} {} ", dtype_name(input.dtype),
                   kExtents[static_cast<std::size_t>(input.extent)]);
    for (std::size_t a = 0; a < input.axes.size(); ++a)
      fmt::format_to(out, "{}{}:{}", a ? "," : "", input.axes[a].size, input.axes[a].stride);
    if (input.offset != 0) fmt::format_to(out, " +{}", input.offset);
    if (input.by >= 0) fmt::format_to(out, " by {} {}", input.by, input.of);
    text += '\n';
  }
  for (const Step& step : steps) {
    const std::string_view type = dtype_name(step.dtype);
    const std::string_view extent =
        step.extent >= Extent::Column ? "" : kExtents[static_cast<std::size_t>(step.extent)];
    switch (step.kind) {
      case Kind::Constant:
        fmt::format_to(out, "const {} {:x}", type, step.bits);
        break;
      case Kind::Apply:
        fmt::format_to(out, "apply {} {} {}", type, extent, step.op);
        break;
      case Kind::Cast:
        fmt::format_to(out, "cast {} {}", type, extent);
        break;
      case Kind::Reduce:
        fmt::format_to(out, "reduce {} {}", type, reduction_name(step.reduction));
        break;
      case Kind::Columns:
        fmt::format_to(out, "columns {}", type);
        break;
      case Kind::Scan:
        fmt::format_to(out, "scan {} {}", type, reduction_name(step.reduction));
        break;
      case Kind::Uniform:
        fmt::format_to(out, "uniform {} {} {:x} {:x}", type, extent, step.bits, step.salt);
        break;
    }
    for (const int operand : step.operands) fmt::format_to(out, " {}", operand);
    if (step.kind == Kind::Scan)
      fmt::format_to(out, " {}{}{}{}", step.length, step.reverse ? " reverse" : "",
                     step.exclusive ? " exclusive" : "", step.last ? " last" : "");
    for (const auto& [name, value] : step.parameters) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, &value, sizeof value);
      fmt::format_to(out, " {}={:x}", name, bits);
    }
    text += '\n';
  }
  for (const Output& output : outputs) {
    if (output.is_of_previous) {
      fmt::format_to(out, "also {} {}\n", output.value, output.offset);
      continue;
    }
    fmt::format_to(out, "out {} ", output.value);
    if (output.shape.rank() == 0) text += '-';
    for (int d = 0; d < output.shape.rank(); ++d) fmt::format_to(out, "{}{}", d ? "," : "", output.shape[d]);
    if (output.is_part) fmt::format_to(out, " {}:{}", output.offset, output.width);
    text += '\n';
  }
  return text;
}

Region Region::parse(std::string_view text) { return Reader(text).read(); }

}  // namespace braid::fusion
