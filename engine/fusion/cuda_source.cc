#include "engine/fusion/cuda_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/init.h"
#include "engine/fusion/cuda_columns.h"
#include "engine/fusion/cuda_formula.h"
#include "engine/fusion/cuda_layout.h"
#include "engine/fusion/cuda_offset.h"
#include "engine/fusion/cuda_prelude.h"
#include "engine/fusion/cuda_walk.h"
#include "engine/fusion/drawn_bounds.h"
#include "engine/ir/op.h"

namespace braid::fusion {
namespace {

constexpr const char* kUnnamed = "@region";  // the kernel, until its text is there
constexpr const char* kEachPlace = "_Pragma(\"unroll\") for (int e = 0; e < E; ++e)";
constexpr const char* kEachVector = "_Pragma(\"unroll\") for (int k = 0; k < E; k += V)";

bool is_half(DType dtype) { return dtype == DType::Float16 || dtype == DType::BFloat16; }

class Writer {
 public:
  explicit Writer(const Region& region)
      : region_(region), layout_(region), tensors_(region.tensors()), columns_(region, layout_) {}

  CudaSource write() {
    list_parameters();
    line("template <bool aligned> BRAID_INLINE void {}_body({}{}) {{", kUnnamed, fmt::join(parameters_, ", "),
         layout_.loops ? ", char* shared" : "");
    begin_body();
    types();
    text_ += columns_.begin();
    if (layout_.walks) text_ += begin_walk(region_, layout_);
    places();
    for (int v = 0; v < region_.values(); ++v) region_.is_input(v) ? load(v) : compute(v);
    for (std::size_t o = 0; o < region_.outputs.size(); ++o) store(o);
    text_ += columns_.end();
    if (layout_.walks) text_ += end_walk(region_, tensors_);
    text_ += "}\n";
    write_kernel();
    CudaSource source;
    source.blocks = layout_.blocks;
    source.threads = layout_.threads;
    source.scratch_bytes = columns_.scratch_bytes();
    source.is_of_halves = region_.touches_halves();
    if (layout_.loops) {
      text_ += columns_.kernel(kUnnamed, tensors_);
      source.column_blocks = columns_.blocks();
      source.column_threads = ColumnSums::kThreads;
    }
    source.name = fmt::format("region_{:08x}", stable_hash(text_) >> 32);
    for (std::size_t at = 0; (at = text_.find(kUnnamed, at)) != std::string::npos; at += source.name.size())
      text_.replace(at, std::string_view(kUnnamed).size(), source.name);
    source.text = kCudaPrelude + std::move(text_);
    return source;
  }

 private:
  template <class... Arguments>
  void line(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Arguments>(arguments)...);
    text_ += '\n';
  }

  /// A value for each place, or one for the thread. Values of a row are a place's where threads cross rows.
  bool is_placed(Extent extent) const {
    return extent == Extent::Full || (extent == Extent::Row && !layout_.by_rows);
  }
  std::string at(int value) const {
    return fmt::format("v{}{}", value, is_placed(region_.extent_of(value)) ? "[e]" : "");
  }
  static std::string_view type(DType dtype) {
    const std::string_view name = cuda_type(dtype);
    if (name.empty()) throw InvalidArgument(fmt::format("a region has no values of {}", dtype_name(dtype)));
    return name;
  }

  void list_parameters() {
    const auto add = [&](std::string declared, std::string name) {
      parameters_.push_back(std::move(declared) + name);
      names_.push_back(std::move(name));
    };
    for (std::size_t i = 0; i < region_.inputs.size(); ++i)
      add(fmt::format("const {}* __restrict__ ", type(region_.inputs[i].dtype)), fmt::format("in{}", i));
    for (std::size_t o = 0; o < region_.outputs.size(); ++o)
      if (!region_.outputs[o].is_of_previous)
        add(fmt::format("{}* __restrict__ ", type(region_.dtype_of(region_.outputs[o].value))),
            fmt::format("out{}", tensors_[o]));
    if (layout_.loops) add("char* __restrict__ ", "scratch");
    const std::vector<int> uniforms = region_.uniforms();
    if (!uniforms.empty()) add("const StepParams* __restrict__ ", "params");
    for (const int v : uniforms) {
      add("unsigned long long ", fmt::format("hash{}", v));
      add("unsigned long long ", fmt::format("salt{}", v));
    }
    if (!region_.gathers()) return;
    add("StepStatus* __restrict__ ", "status");
    add("int ", "op");
  }

  void begin_body() {
    for (const int v : region_.uniforms())
      line("const unsigned long long key{} = random_key(params->seed ^ salt{}, hash{}, params->step);", v, v,
           v);
  }

  /// The body twice where vectors are loaded: what does not begin at a multiple of 16 bytes is read place by
  /// place. The host does not know that when the kernel is made, as inputs may be parts of other tensors.
  void write_kernel() {
    const std::string resident = layout_.resident > 0 ? fmt::format(", {}", layout_.resident) : "";
    line("extern \"C\" __global__ void __launch_bounds__({}{}) {}({}) {{", layout_.threads, resident,
         kUnnamed, fmt::join(parameters_, ", "));
    std::string arguments = fmt::format("{}", fmt::join(names_, ", "));
    if (layout_.loops) {
      line("__shared__ double shared[{}];", columns_.shared_doubles());
      arguments += ", reinterpret_cast<char*>(shared)";
    }
    const std::string all = layout_.vector > 1 ? addresses() : "";
    if (!all.empty()) line("if ((0{}) % 16 != 0) return {}_body<false>({});", all, kUnnamed, arguments);
    line("{}_body<true>({});", kUnnamed, arguments);
    text_ += "}\n";
  }

  void types() {
    const std::int64_t n = region_.rows * region_.columns;
    // Places that are not there are counted, too: behind the last thread, or below the last row of a piece.
    std::int64_t most = n + layout_.places * (layout_.walks ? region_.columns : layout_.threads);
    for (const Region::Output& output : region_.outputs)
      most = std::max(most, output.shape.elements() + layout_.threads * layout_.places);
    for (const Region::Input& input : region_.inputs) most = std::max(most, last_element(input));
    line("typedef {} I;", most < (std::int64_t{1} << 31) ? "int" : "long long");
    line("constexpr int E = {}, V = {};", layout_.places, layout_.vector);
  }

  /// place[e]: the place among rows x columns; here[e]: whether there is one. Those of a vector are all
  /// there, or none.
  void places() {
    line("I place[E]; bool here[E];");
    if (layout_.walks) {
      text_ += walk_places(region_);
    } else if (layout_.by_rows) {
      line("const I wanted = I({}) * {} + threadIdx.x / {};", layout_.loops ? "part" : "blockIdx.x",
           layout_.threads / layout_.row_threads, layout_.row_threads);
      line("const bool is_row = {};", region_.rows % (layout_.threads / layout_.row_threads) == 0
                                          ? std::string("true")
                                          : fmt::format("wanted < I({})", region_.rows));
      line("const I row = is_row ? wanted : I(0); const int lane = threadIdx.x % {};", layout_.row_threads);
      line("int column[E];");
      line(
          "{} {{ column[e] = (lane + (e / V) * {}) * V + e % V; here[e] = column[e] < {}; "
          "place[e] = row * I({}) + column[e]; }}",
          kEachPlace, layout_.row_threads, region_.columns, region_.columns);
    } else {
      line(
          "{} {{ place[e] = (I(blockIdx.x) * {} + (e / V) * {} + threadIdx.x) * V + e % V; "
          "here[e] = place[e] < I({}); }}",
          kEachPlace, layout_.threads * layout_.places / layout_.vector, layout_.threads,
          region_.rows * region_.columns);
    }
  }

  /// Of what is loaded and stored by vectors, or'ed together. The host does not know them when the kernel is
  /// made: inputs may be parts of other tensors.
  std::string addresses() const {
    std::string all;
    for (std::size_t i = 0; i < region_.inputs.size(); ++i)
      if (access(static_cast<int>(i)) == VectorAccess::Together)
        all += fmt::format(" | reinterpret_cast<unsigned long long>(in{})", i);
    for (std::size_t o = 0; o < region_.outputs.size(); ++o)
      if (region_.extent_of(region_.outputs[o].value) == Extent::Full)
        all += fmt::format(" | reinterpret_cast<unsigned long long>(out{})", tensors_[o]);
    return all;
  }

  VectorAccess access(int input) const {
    const Region::Input& of = region_.inputs[static_cast<std::size_t>(input)];
    return of.extent == Extent::Full ? vector_access(of.axes, layout_.vector, of.offset)
                                     : VectorAccess::Apart;
  }

  /// So many places next to each other of a vector are one element, as of a group of few channels.
  int run_of(const Region::Input& input) const {
    if (input.extent != Extent::Full || input.axes.empty() || input.axes.back().stride != 0) return 1;
    return static_cast<int>(std::gcd<std::int64_t>(input.axes.back().size, layout_.vector));
  }

  void load(int value) {
    const Region::Input& input = region_.inputs[static_cast<std::size_t>(value)];
    const std::string_view t = type(input.dtype);
    if (!is_placed(input.extent)) {
      line("const {} v{} = in{}[{}];", t, value, value, cuda_offset(input, "row"));
      return;
    }
    line("{} v{}[E];", t, value);
    if (input.by >= 0) return load_picked(value, input);
    const auto offset_of = [&](std::string_view e) {
      const Axes a_row{{region_.rows, 0}, {region_.columns, 1}};
      if (layout_.by_rows && input.axes == a_row && input.offset == 0) return fmt::format("column[{}]", e);
      if (layout_.walks && input.axes == a_row && input.offset == 0) return std::string("column");
      if (layout_.by_rows && input.extent == Extent::Full && input.axes.size() == 2 &&
          input.axes[0].size == region_.rows && input.axes[1] == Axis{region_.columns, 1})
        return fmt::format("I({}) + row * I({}) + column[{}]", input.offset, input.axes[0].stride, e);
      return cuda_offset(input, input.extent == Extent::Full
                                    ? fmt::format("place[{}]", e)
                                    : fmt::format("(place[{}] / I({}))", e, region_.columns));
    };
    switch (access(value)) {
      case VectorAccess::Together:
        return line("{} load<V>(in{} + {}, here[k], aligned, v{} + k);", kEachVector, value, offset_of("k"),
                    value);
      case VectorAccess::Same:
        return line(
            "{} {{ const {} x = here[k] ? in{}[{}] : static_cast<{}>(0); for (int j = 0; j < V; ++j) "
            "v{}[k + j] = x; }}",
            kEachVector, t, value, offset_of("k"), t, value);
      case VectorAccess::Apart:
        if (const int run = run_of(input); run > 1)
          return line(
              "_Pragma(\"unroll\") for (int e = 0; e < E; e += {}) {{ const {} x = here[e] ? in{}[{}] : "
              "static_cast<{}>(0); for (int j = 0; j < {}; ++j) v{}[e + j] = x; }}",
              run, t, value, offset_of("e"), t, run, value);
        return line("{} v{}[e] = here[e] ? in{}[{}] : static_cast<{}>(0);", kEachPlace, value, value,
                    offset_of("e"), t);
    }
  }

  /// Rows whose numbers are in input `by`, which is loaded before.
  void load_picked(int value, const Region::Input& input) {
    const std::string k = layout_.by_rows ? "" : "[k]";
    const std::string row = fmt::format("static_cast<long long>(v{}{})", input.by, k);
    const auto is_there = [&](std::string_view is_first) {
      return fmt::format("is_row_of({}, {}ll, {}, status, op)", row, input.of, is_first);
    };
    if (layout_.by_rows) {
      line("const bool there{} = {};", value, is_there("is_row && lane == 0"));
      line("{} load<V>(in{} + {} * {} + column[k], here[k] && there{}, aligned, v{} + k);", kEachVector,
           value, row, region_.columns, value, value);
    } else {
      line("{} load<V>(in{} + {} * {} + place[k] % I({}), here[k] && {}, aligned, v{} + k);", kEachVector,
           value, row, region_.columns, region_.columns, is_there("here[k]"), value);
    }
  }

  std::string expression(const Region::Step& step) const {
    if (step.kind == Region::Kind::Constant) return cuda_constant(step.bits, step.dtype);
    if (step.kind == Region::Kind::Cast)
      return fmt::format("Convert<{}, {}>::of({})", type(step.dtype),
                         type(region_.dtype_of(step.operands[0])), at(step.operands[0]));
    const OpDef* op = OpRegistry::global().find(step.op);
    std::vector<DType> dtypes;
    std::vector<std::string> names;
    for (const int operand : step.operands) {
      dtypes.push_back(region_.dtype_of(operand));
      names.push_back(at(operand));
    }
    if (!op || !is_expressible(op->traits.formula, dtypes))
      throw InvalidArgument(fmt::format("'{}' has no formula for these types", step.op));
    return cuda_expression(op->traits.formula, dtypes, names, step.parameters);
  }

  void compute(int value) {
    const Region::Step& step = region_.step(value);
    const std::string_view t = type(step.dtype);
    if (step.kind == Region::Kind::Reduce) return reduce(value, step);
    if (step.kind == Region::Kind::Uniform) return draw(value, step);
    if (step.kind == Region::Kind::Scan) {
      text_ += scan_places(region_, value);
      return;
    }
    if (step.kind == Region::Kind::Columns) {
      line("{} if (here[e] && is_row) sum{}[e] = fn::add<{}>(sum{}[e], v{}[e]);", kEachPlace, value, t, value,
           step.operands[0]);
      return;
    }
    if (draws_and_compares(value)) return;
    if (step.kind == Region::Kind::Cast && step.extent == Extent::Full && is_half(step.dtype) &&
        region_.dtype_of(step.operands[0]) == DType::Float32 &&
        region_.extent_of(step.operands[0]) == Extent::Full && layout_.places % 2 == 0)
      line("{} v{}[E]; _Pragma(\"unroll\") for (int e = 0; e < E; e += 2) round_pair({} + e, v{} + e);", t,
           value, fmt::format("v{}", step.operands[0]), value);
    else if (is_placed(step.extent))
      line("{} v{}[E]; {} v{}[e] = {};", t, value, kEachPlace, value, expression(step));
    else
      line("const {} v{} = {};", t, value, expression(step));
  }

  /// The comparison of a number that is not made by itself.
  bool draws_and_compares(int value) {
    const int uniform = compared_uniform(region_, value);
    if (uniform < 0) return false;
    line("bool v{}[E]; {} draw_below<V>(key{}, place[k], {}u, v{} + k);", value, kEachVector, uniform,
         *bound_of_uniform(region_, uniform), value);
    return true;
  }

  void draw(int value, const Region::Step& step) {
    if (bound_of_uniform(region_, value)) return;
    if (step.extent == Extent::Full)
      line("float v{}[E]; {} draw<V>(key{}, place[k], v{} + k);", value, kEachVector, value, value);
    else if (layout_.by_rows)
      line("float v{}; draw<1>(key{}, row, &v{});", value, value, value);
    else
      line("float v{}[E]; {} draw<1>(key{}, place[e] / I({}), v{} + e);", value, kEachPlace, value,
           region_.columns, value);
  }

  void reduce(int value, const Region::Step& step) {
    const std::string_view t = type(step.dtype), name = reduction_name(step.reduction);
    const int x = step.operands[0];
    // Place 0 of lane 0 is always there; threads without a place give what changes nothing.
    line("{} v{} = {};", t, value, neutral_of(step.reduction, step.dtype));
    line("{} if (here[e]) v{} = rows::{}<{}>::of(v{}, v{}[e]);", kEachPlace, value, name, t, value, x);
    line("v{} = reduce_row<rows::{}, {}>(v{});", value, name, layout_.row_threads, value);
  }

  /// Where a Full value's vector k is stored.
  std::string place_in(const Region::Output& output) const {
    if (!output.is_part) return "place[k]";
    if (layout_.by_rows) return fmt::format("I({}) + row * I({}) + column[k]", output.offset, output.width);
    return fmt::format("I({}) + place[k] / I({}) * I({}) + place[k] % I({})", output.offset, region_.columns,
                       output.width, region_.columns);
  }

  void store(std::size_t o) {
    const int value = region_.outputs[o].value, output = tensors_[o];
    if (region_.extent_of(value) >= Extent::Column) return;  // stored behind the loop
    if (region_.extent_of(value) == Extent::Full) {
      line("{} store<V>(out{} + {}, here[k]{}, aligned, v{} + k);", kEachVector, output,
           place_in(region_.outputs[o]), layout_.by_rows ? " && is_row" : "", value);
    } else if (layout_.by_rows) {
      line("if (is_row && lane == 0) out{}[row] = v{};", output, value);
    } else {
      line("{} if (here[e] && place[e] % I({}) == 0) out{}[place[e] / I({})] = {};", kEachPlace,
           region_.columns, output, region_.columns, at(value));
    }
  }

  const Region& region_;
  CudaLayout layout_;
  const std::vector<int> tensors_;  // by output
  std::string text_;
  std::vector<std::string> parameters_, names_;  // declared and by name
  const ColumnSums columns_;
};

}  // namespace

CudaSource cuda_source(const Region& region) { return Writer(region).write(); }

}  // namespace braid::fusion
