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

std::uint64_t bytes_of(const PrepareContext& c) {
  return static_cast<std::uint64_t>(c.outputs[0].shape.elements()) * dtype_size(c.outputs[0].dtype);
}

PreparedKernel prepare_host(const PrepareContext& c) {
  PreparedKernel kernel;
  kernel.run = [bytes = bytes_of(c)](const KernelArgs& a) {
    if (bytes != 0) std::memcpy(a.outputs[0], a.inputs[0], bytes);
  };
  return kernel;
}

PreparedKernel prepare_device(const PrepareContext& c) {
  PreparedKernel kernel;
  kernel.run = [bytes = bytes_of(c), device = c.accelerator](const KernelArgs& a) {
    if (bytes != 0) device->copy(a.outputs[0], a.inputs[0], bytes, a.stream);
  };
  return kernel;
}

PreparedKernel prepare_fetch(const PrepareContext& c, PreparedKernel kernel) {
  if (c.inputs[0].shape != c.outputs[0].shape) c.fail("the variable has another shape");
  return kernel;
}

std::uint64_t state_bytes(const PrepareContext& c) {
  return static_cast<std::uint64_t>(c.inputs[0].shape.elements()) * dtype_size(c.inputs[0].dtype);
}

PreparedKernel prepare_host_store(const PrepareContext& c) {
  PreparedKernel kernel;
  kernel.run = [bytes = state_bytes(c)](const KernelArgs& a) {
    if (bytes != 0) std::memcpy(a.inputs[0], a.inputs[1], bytes);
  };
  return kernel;
}

PreparedKernel prepare_device_store(const PrepareContext& c) {
  PreparedKernel kernel;
  kernel.run = [bytes = state_bytes(c), device = c.accelerator](const KernelArgs& a) {
    if (bytes != 0) device->copy(a.inputs[0], a.inputs[1], bytes, a.stream);
  };
  return kernel;
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
  def.cpu = [](const PrepareContext& c) { return prepare_fetch(c, prepare_host(c)); };
  def.cuda = [](const PrepareContext& c) { return prepare_fetch(c, prepare_device(c)); };
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
  def.cpu = prepare_host_store;
  def.cuda = prepare_device_store;
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
  def.cpu = prepare_host;
  def.cuda = prepare_device;
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
