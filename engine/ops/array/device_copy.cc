// braid.HostToDevice and braid.DeviceToHost: a value where the other side can read it. Placement adds them
// where an op and its input live on different sides; they run on streams of their own lanes, so copies
// overlap the kernels. Input: any value. Output: the same type and shape. Without a device both are plain
// copies. What is offloaded (worker/step/offload.h) goes by the same ops; with the attribute in_arena
// (engine/ir/offload_attrs.h) a value that is brought lies in the step's arena, and not in memory of its own.
//
// braid.FetchState(handle) and braid.StoreState(handle, value) copy a variable that stays on the host, from
// and to the device: its handle has the attribute on_host.
#include <cstring>

#include "engine/device/accelerator.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

struct Places {
  void* to;
  const void* from;
};
using PlacesOf = Places (*)(const KernelArgs&);

Places into_output(const KernelArgs& a) { return {a.outputs[0], a.inputs[0]}; }
Places into_variable(const KernelArgs& a) { return {a.inputs[0], a.inputs[1]}; }

/// Without a device the bytes are copied at once.
PreparedKernel prepare_copy(const OutputInfo& value, PlacesOf places_of, Accelerator* device) {
  const auto bytes = static_cast<std::uint64_t>(value.shape.elements()) * dtype_size(value.dtype);
  PreparedKernel kernel;
  kernel.run = [=](const KernelArgs& a) {
    if (bytes == 0) return;
    const Places places = places_of(a);
    if (device)
      device->copy(places.to, places.from, bytes, a.stream);
    else
      std::memcpy(places.to, places.from, bytes);
  };
  return kernel;
}

PreparedKernel prepare_move(const PrepareContext& c) {
  return prepare_copy(c.outputs[0], into_output, c.accelerator);
}

PreparedKernel prepare_fetch(const PrepareContext& c) {
  if (c.inputs[0].shape != c.outputs[0].shape) c.fail("the variable has another shape");
  return prepare_move(c);
}

PreparedKernel prepare_store(const PrepareContext& c) {
  return prepare_copy(c.inputs[0], into_variable, c.accelerator);
}

OpDef fetch_state() {
  OpDef def;
  def.name = "braid.FetchState";
  def.traits = computes();
  def.min_inputs = def.max_inputs = 1;
  def.infer = [](InferContext& c) { c.output(c.attr<DType>("dtype", DType::Float32), c.shape(0)); };
  def.no_gradient_reason = "it reads a state of an optimizer";
  def.cost = [](const InferContext&, std::span<const OutputInfo> outputs) {
    return Cost{0, 2 * known_bytes(outputs[0])};
  };
  def.cpu = def.cuda = prepare_fetch;
  def.handles = {Access::Read};
  def.stateful = true;
  def.lane = Lane::HostToDevice;
  return def;
}

OpDef store_state() {
  OpDef def;
  def.name = "braid.StoreState";
  def.traits = updates();
  def.min_inputs = def.max_inputs = 2;
  def.infer = [](InferContext& c) { merged_shape(c, 0, 1); };
  def.no_gradient_reason = "it writes a variable";
  def.cost = [](const InferContext& c, std::span<const OutputInfo>) {
    return Cost{0, 2 * known_bytes({c.dtype(1), c.shape(1)})};
  };
  def.cpu = def.cuda = prepare_store;
  def.handles = {Access::Write, Access::Read};
  def.side_effect = true;
  def.lane = Lane::DeviceToHost;
  return def;
}

OpDef definition(const char* name, Lane lane) {
  OpDef def;
  def.name = name;
  def.traits = moves();
  def.min_inputs = def.max_inputs = 1;
  def.infer = [](InferContext& c) { c.output(c.dtype(0), c.shape(0)); };
  def.no_gradient_reason = "placement adds it after differentiation";
  def.cpu = def.cuda = prepare_move;
  def.lane = lane;
  return def;
}

}  // namespace

void register_device_copy(OpRegistry& registry) {
  registry.add(definition("braid.HostToDevice", Lane::HostToDevice));
  registry.add(definition("braid.DeviceToHost", Lane::DeviceToHost));
  registry.add(fetch_state());
  registry.add(store_state());
}

}  // namespace braid
