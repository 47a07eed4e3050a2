// braid.HostToDevice and braid.DeviceToHost: a value where the other side can read it. Placement adds them
// where an op and its input live on different sides; they run on streams of their own lanes, so copies
// overlap the kernels. Input: any value. Output: the same type and shape. Without a device both are plain
// copies.
#include <cstring>

#include "engine/device/accelerator.h"
#include "engine/ir/op.h"

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
}

}  // namespace braid
