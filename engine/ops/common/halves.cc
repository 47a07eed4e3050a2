#include "engine/ops/common/halves.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "engine/ops/common/half.h"
#include "engine/ops/common/kernel_util.h"

namespace braid {
namespace {

struct HalfOps {
  std::map<std::string, HalfForm, std::less<>> forms;
  std::set<std::string, std::less<>> on_cuda;
};

HalfOps& half_ops() {
  static HalfOps* ops = new HalfOps;  // as the registry of ops, it lives as long as the process
  return *ops;
}

OutputInfo widened(OutputInfo info) {
  if (is_half(info.dtype)) info.dtype = DType::Float32;
  return info;
}

void infer_halves(const std::function<void(InferContext&)>& infer, InferContext& c) {
  std::vector<OutputInfo> inputs;
  std::vector<const Tensor*> values;
  bool any = false;
  for (int i = 0; i < c.inputs(); ++i) {
    any = any || is_half(c.dtype(i));
    inputs.push_back(widened({c.dtype(i), c.shape(i)}));
    values.push_back(is_half(c.dtype(i)) ? nullptr : c.value(i));
  }
  const auto halves = c.attr<std::vector<std::int64_t>>(kHalfOutputs, {});
  if (!any && halves.empty()) return infer(c);
  InferContext wide(c.node(), inputs, values);
  infer(wide);
  std::vector<OutputInfo> outputs = wide.take_outputs();
  for (const std::int64_t output : halves)
    outputs.at(static_cast<std::size_t>(output)).dtype = c.attr(kHalfType, DType::BFloat16);
  for (OutputInfo& output : outputs) c.output(output.dtype, std::move(output.shape));
}

/// Rules ask for float32; bytes are counted as if all were.
Cost cost_of_halves(const std::function<Cost(const InferContext&, std::span<const OutputInfo>)>& cost,
                    const InferContext& c, std::span<const OutputInfo> outputs) {
  std::vector<OutputInfo> inputs, results;
  std::vector<const Tensor*> values;
  for (int i = 0; i < c.inputs(); ++i) {
    inputs.push_back(widened({c.dtype(i), c.shape(i)}));
    values.push_back(is_half(c.dtype(i)) ? nullptr : c.value(i));
  }
  for (const OutputInfo& output : outputs) results.push_back(widened(output));
  return cost(InferContext(c.node(), inputs, values), results);
}

template <class From, class To>
void convert(const void* from, void* to, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i)
    static_cast<To*>(to)[i] = formula::convert_any<To>(static_cast<const From*>(from)[i]);
}

using Convert = void (*)(const void* from, void* to, std::int64_t begin, std::int64_t end);

Convert widening_of(DType half) {
  return half == DType::Float16 ? convert<Float16, float> : convert<BFloat16, float>;
}
Convert rounding_to(DType half) {
  return half == DType::Float16 ? convert<float, Float16> : convert<float, BFloat16>;
}

std::vector<int> listed(const std::vector<int>& list, std::size_t all) {
  if (list != std::vector<int>{-1}) return list;
  std::vector<int> every(all);
  std::iota(every.begin(), every.end(), 0);
  return every;
}

/// The inputs that the kernel reads and the form names. Others stay as they are: handles of variables too.
std::set<int> read_halves(const Node& node) {
  const HalfForm& form = *half_form(*node.op);
  const std::vector<int> inputs = half_inputs(form, node);
  std::set<int> read(inputs.begin(), inputs.end());
  if (form.like_output >= 0) read.insert(form.like_output);
  for (const int i : node.op->shape_only) read.erase(i < 0 ? i + static_cast<int>(node.inputs.size()) : i);
  return read;
}

/// A value that a kernel of float32 has in scratch, and the op's own.
struct WideValue {
  int index = 0;
  std::int64_t elements = 0;
  std::size_t offset = 0;  // in scratch
  Convert convert = nullptr;
};

constexpr std::size_t kAlignment = 64;
std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

/// Inputs that are `read`, or with null outputs.
std::vector<WideValue> wide_values(std::span<const OutputInfo> infos, const std::set<int>* read,
                                   std::size_t& scratch) {
  std::vector<WideValue> values;
  for (std::size_t i = 0; i < infos.size(); ++i) {
    if (!is_half(infos[i].dtype) || (read && !read->contains(static_cast<int>(i)))) continue;
    const std::int64_t elements = infos[i].shape.elements();
    values.push_back({static_cast<int>(i), elements, scratch,
                      read ? widening_of(infos[i].dtype) : rounding_to(infos[i].dtype)});
    scratch += aligned(static_cast<std::size_t>(elements) * sizeof(float));
  }
  return values;
}

std::vector<OutputInfo> all_widened(std::span<const OutputInfo> infos, const std::set<int>* read) {
  std::vector<OutputInfo> wide(infos.begin(), infos.end());
  for (std::size_t i = 0; i < wide.size(); ++i)
    if (!read || read->contains(static_cast<int>(i))) wide[i] = widened(wide[i]);
  return wide;
}

PreparedKernel prepare_halves(const PrepareFn& prepare, const PrepareContext& c) {
  const auto halves = [](const OutputInfo& info) { return is_half(info.dtype); };
  if (std::none_of(c.inputs.begin(), c.inputs.end(), halves) &&
      std::none_of(c.outputs.begin(), c.outputs.end(), halves))
    return prepare(c);
  const std::set<int> inputs_read = read_halves(c.node);
  const std::vector<OutputInfo> inputs = all_widened(c.inputs, &inputs_read),
                                outputs = all_widened(c.outputs, nullptr);
  const PrepareContext wide{c.node, inputs,     outputs,         c.values,
                            c.pool, c.services, c.deterministic, c.accelerator};
  PreparedKernel inner = prepare(wide), kernel;
  std::size_t scratch = aligned(inner.scratch_bytes);
  const std::vector<WideValue> read = wide_values(c.inputs, &inputs_read, scratch);
  const std::vector<WideValue> written = wide_values(c.outputs, nullptr, scratch);
  kernel.scratch_bytes = scratch;
  kernel.run = [run = std::move(inner.run), read, written, pool = &c.pool, inputs = c.inputs.size(),
                outputs = c.outputs.size()](const KernelArgs& a) {
    auto* const base = static_cast<std::byte*>(a.scratch);
    std::vector<void*> in(a.inputs, a.inputs + inputs), out(a.outputs, a.outputs + outputs);
    for (const WideValue& v : read) {
      void*& at = in[static_cast<std::size_t>(v.index)];
      const void* const from = std::exchange(at, base + v.offset);
      pool->parallel_range(v.elements, kElementGrain,
                           [&](std::int64_t begin, std::int64_t end) { v.convert(from, at, begin, end); });
    }
    for (const WideValue& v : written) out[static_cast<std::size_t>(v.index)] = base + v.offset;
    KernelArgs args = a;
    args.inputs = in.data();
    args.outputs = out.data();
    run(args);
    for (const WideValue& v : written)
      pool->parallel_range(v.elements, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
        v.convert(base + v.offset, a.outputs[v.index], begin, end);
      });
  };
  return kernel;
}

}  // namespace

OpDef takes_halves(OpDef def, HalfForm form) {
  if (!half_ops().forms.emplace(def.name, std::move(form)).second)
    throw Internal("op '" + def.name + "' says twice how it takes halves");
  def.infer = [infer = std::move(def.infer)](InferContext& c) { infer_halves(infer, c); };
  if (def.cost)
    def.cost = [cost = std::move(def.cost)](const InferContext& c, std::span<const OutputInfo> outputs) {
      return cost_of_halves(cost, c, outputs);
    };
  if (def.cpu)
    def.cpu = [prepare = std::move(def.cpu)](const PrepareContext& c) { return prepare_halves(prepare, c); };
  return def;
}

const HalfForm* half_form(const OpDef& op) {
  const auto at = half_ops().forms.find(op.name);
  return at == half_ops().forms.end() ? nullptr : &at->second;
}

std::vector<int> half_inputs(const HalfForm& form, const Node& node) {
  return form.inputs_of ? form.inputs_of(node) : listed(form.inputs, node.inputs.size());
}

std::vector<int> half_outputs(const HalfForm& form, const Node& node) {
  return listed(form.outputs, node.outputs.size());
}

void cuda_takes_halves(std::initializer_list<std::string_view> ops) {
  for (const std::string_view op : ops) half_ops().on_cuda.emplace(op);
}

bool has_half_kernel_on_cuda(const OpDef& op) { return half_ops().on_cuda.contains(op.name); }

void set_half_output(Node& node, int output, DType half) {
  auto outputs = node.attrs.get<std::vector<std::int64_t>>(kHalfOutputs, {});
  outputs.push_back(output);
  node.attrs.set(kHalfOutputs, outputs);
  node.attrs.set(kHalfType, half);
  node.outputs[static_cast<std::size_t>(output)].dtype = half;
}

}  // namespace braid
