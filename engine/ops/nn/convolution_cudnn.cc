#include "engine/ops/nn/convolution_cudnn.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/device/kept_choices.h"
#include "engine/ops/common/cuda/fastest.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/nn/channel_padding.h"

namespace braid::cuda {
namespace {

constexpr std::size_t kMostWorkspace = 512U << 20;

/// The numbers of a graph's tensors; -1: there is none.
struct Tensors {
  int images, filter, outputs, bias = -1, residual = -1, count = 0;

  void run(const CudnnPlan& plan, const ConvolutionArgs& a) const {
    constexpr std::size_t kMost = 8;
    std::array<void*, kMost> pointers{};
    const auto put = [&](int tensor, const void* memory) {
      if (tensor >= 0) pointers[static_cast<std::size_t>(tensor)] = const_cast<void*>(memory);
    };
    put(images, a.images);
    put(filter, a.filter);
    put(outputs, a.outputs);
    put(bias, a.bias);
    put(residual, a.residual);
    plan.run(std::span(pointers).first(static_cast<std::size_t>(count)), a.workspace, a.stream);
  }
};

/// A graph of the pass, with the layer's steps where `fused`.
struct PassGraph {
  CudnnGraph graph;
  Tensors tensors;

  PassGraph(CudaDevice& device, const Convolution& conv, ConvolutionPass pass, DType dtype,
            const ConvolutionLayer& layer, bool fused, std::int64_t alignment)
      : graph(device) {
    const bool last = !conv.window.axes.nchw();
    const auto tensor = [&](std::int64_t n, std::int64_t c, std::int64_t d, std::int64_t h, std::int64_t w) {
      std::vector<std::int64_t> sizes{n, c, h, w};
      if (conv.window.axes.volumes()) sizes.insert(sizes.begin() + 2, d);
      return CudnnTensor{
          .sizes = std::move(sizes), .channels_last = last, .dtype = dtype, .alignment_bytes = alignment};
    };
    const CudnnTensor result = tensor(conv.batch, conv.out_c, conv.out_d, conv.out_h, conv.out_w);
    CudnnTensor sum = result, biases = tensor(1, conv.out_c, 1, 1, 1);
    sum.dtype = biases.dtype = DType::Float32;
    int count = 3;
    tensors.images = graph.tensor(tensor(conv.batch, conv.in_c, conv.in_d, conv.in_h, conv.in_w));
    tensors.filter = graph.tensor(tensor(conv.out_c, conv.in_c / conv.groups, conv.window.d.kernel,
                                         conv.window.h.kernel, conv.window.w.kernel));
    tensors.outputs = graph.tensor(result);
    if (!fused) {
      graph.convolve(pass, conv, tensors.images, tensors.filter, tensors.outputs);
      tensors.count = count;
      return;
    }
    int steps = static_cast<int>(layer.has_bias) + static_cast<int>(layer.has_residual) +
                static_cast<int>(layer.relu);
    const auto next = [&] { return --steps == 0 ? tensors.outputs : (++count, graph.inner(sum)); };
    ++count;
    int value = graph.inner(sum);
    graph.convolve(pass, conv, tensors.images, tensors.filter, value);
    const auto add = [&](int other) {
      const int to = next();
      graph.add(value, other, to);
      value = to;
    };
    if (layer.has_bias) {
      ++count;
      add(tensors.bias = graph.tensor(biases));
    }
    if (layer.has_residual) {
      ++count;
      add(tensors.residual = graph.tensor(result));
    }
    if (layer.relu) graph.relu(value, next());
    tensors.count = count;
  }
};

/// One way to do the pass.
struct Way {
  std::string name;
  PreparedConvolution how;
};

/// Which way is fastest on the device; the memory holds whatever it holds.
int measured(CudaDevice& device, const Convolution& conv, const ConvolutionLayer& layer,
             const std::vector<Way>& ways) {
  const auto take = [&](std::int64_t elements) {
    return device.allocate(static_cast<std::uint64_t>(elements) * sizeof(float),
                           "convolutions that are measured");
  };
  std::size_t workspace = 0;
  for (const Way& way : ways) workspace = std::max(workspace, way.how.workspace_bytes);
  const std::int64_t results = conv.batch * conv.out_image();
  const auto images = take(conv.batch * conv.in_image());
  const auto filter = take(static_cast<std::int64_t>(conv.filter_bytes() / sizeof(float)));
  const auto outputs = take(results), bias = take(conv.out_c),
             residual = take(layer.has_residual ? results : 1);
  const auto memory =
      device.allocate(std::max<std::uint64_t>(workspace, 1), "convolutions that are measured");
  return fastest(device, static_cast<int>(ways.size()), [&](int way, StreamRef stream) {
    try {
      ways[static_cast<std::size_t>(way)].how.run(
          {.images = images.get(),
           .filter = filter.get(),
           .outputs = outputs.get(),
           .workspace = memory.get(),
           .stream = stream,
           .bias = layer.has_bias ? reinterpret_cast<const float*>(bias.get()) : nullptr,
           .residual = layer.has_residual ? residual.get() : nullptr});
    } catch (const DeviceError&) {
      return false;
    }
    return true;
  });
}

/// What was prepared for a convolution stays for the programs that come after: plans take long to make, some
/// are compiled.
class Known {
 public:
  static Known& get() {
    static auto* known = new Known;
    return *known;
  }
  std::shared_ptr<const PreparedConvolution> find(const std::string& key) {
    const std::lock_guard lock(mu_);
    const auto at = known_.find(key);
    return at == known_.end() ? nullptr : at->second;
  }
  void keep(const std::string& key, std::shared_ptr<const PreparedConvolution> prepared) {
    const std::lock_guard lock(mu_);
    known_[key] = std::move(prepared);
  }

 private:
  std::mutex mu_;
  std::map<std::string, std::shared_ptr<const PreparedConvolution>> known_;  // guarded by mu_
};

/// Null when cuDNN has no engine for this that takes at most `most_workspace` bytes.
std::shared_ptr<const PreparedConvolution> prepare_at_once(const PrepareContext& c, const Convolution& conv,
                                                           ConvolutionPass pass, DType dtype,
                                                           const ConvolutionLayer& layer,
                                                           const OwnConvolution& own, std::int64_t alignment,
                                                           std::size_t most_workspace) {
  CudaDevice& device = device_of(c.accelerator);
  const CudnnLimits limits{.deterministic = c.deterministic,
                           .tensor_cores = device.options().tf32 || is_half(dtype),
                           .most_workspace_bytes = most_workspace,
                           .most_plans = layer.is_plain() ? 8 : 4};
  const std::string name =
      fmt::format("{} {} {} {} {} {}", device.ordinal(), limits.deterministic, limits.tensor_cores,
                  most_workspace, own && alignment == 16,
                  PassGraph(device, conv, pass, dtype, layer, !layer.is_plain(), alignment).graph.key());
  if (auto known = Known::get().find(name)) return known;
  std::vector<Way> ways;
  std::string key;
  for (const bool fused : {true, false}) {
    if (fused && layer.is_plain()) continue;
    const auto add = [&](const std::string& name, PreparedConvolution how) {
      key += name + "; ";
      if (!fused && layer.after)
        how.run = [run = std::move(how.run), after = layer.after,
                   images = conv.batch](const ConvolutionArgs& a) {
          run(a);
          after(a, images);
        };
      ways.push_back({name, std::move(how)});
    };
    const auto graph = std::make_shared<PassGraph>(device, conv, pass, dtype, layer, fused, alignment);
    key += graph->graph.key();
    for (const CudnnPlan& plan : graph->graph.plans(limits))
      add(plan.engine, {plan.workspace_bytes, [plan, tensors = graph->tensors](const ConvolutionArgs& a) {
                          tensors.run(plan, a);
                        }});
    if (fused || alignment < 16) continue;
    if (auto how = own ? own(conv) : std::nullopt) add("a kernel of our own", std::move(*how));
    if (auto wide = is_half(dtype) ? with_eight_channels(conv) : std::nullopt) {
      const auto padded = std::make_shared<PassGraph>(device, *wide, pass, dtype, layer, false, alignment);
      key += padded->graph.key();
      for (const CudnnPlan& plan : padded->graph.plans(limits))
        add("eight channels, " + plan.engine,
            padded_channels(conv, *wide, pass,
                            {plan.workspace_bytes, [plan, tensors = padded->tensors](
                                                       const ConvolutionArgs& a) { tensors.run(plan, a); }}));
    }
  }
  if (ways.empty()) return nullptr;
  std::size_t best = 0;
  if (ways.size() > 1) try {
      best = static_cast<std::size_t>(KeptChoices::process().get(
          key, static_cast<int>(ways.size()), [&] { return measured(device, conv, layer, ways); }));
    } catch (const OutOfMemory&) {  // then the first one
    }
  log_debug("[{}] node '{}': {} of {} ways", c.node.op->name, c.node.name, ways[best].name, ways.size());
  auto prepared = std::make_shared<const PreparedConvolution>(std::move(ways[best].how));
  Known::get().keep(name, prepared);
  return prepared;
}

}  // namespace

std::vector<ConvolutionPart> prepare_cudnn(const PrepareContext& c, const Convolution& conv,
                                           ConvolutionPass pass, DType dtype, const ConvolutionLayer& layer,
                                           const OwnConvolution& own) {
  std::map<std::int64_t, std::shared_ptr<const PreparedConvolution>> known;  // by images
  std::size_t most_workspace = kMostWorkspace;
  const std::int64_t in_image = conv.in_image(), out_image = conv.out_image();
  const auto works = [&](std::int64_t images) {
    if (known.contains(images)) return true;
    Convolution part = conv;
    part.batch = images;
    const auto size = static_cast<std::int64_t>(dtype_size(dtype)), pack = 16 / size;
    const bool apart = images != conv.batch && (in_image % pack != 0 || out_image % pack != 0);
    auto prepared = prepare_at_once(c, part, pass, dtype, layer, own, apart ? size : 16, most_workspace);
    if (prepared) known[images] = prepared;
    return prepared != nullptr;
  };
  const std::int64_t an_image = std::max(in_image, out_image);
  std::int64_t images = images_a_part(conv.batch, kMostElements / an_image, works);
  if (images == 0 && an_image <= kMostElements) {  // large images: one at a time, whatever it takes
    most_workspace = std::numeric_limits<std::size_t>::max();
    images = works(1) ? 1 : 0;
  }
  if (images == 0) return {};
  std::vector<ConvolutionPart> parts;
  for (const BatchPart& part : batch_parts(conv.batch, images))
    parts.push_back({part, known.at(part.images)});
  if (parts.size() > 1)
    log_debug("[{}] node '{}': a batch of {} images in parts of {}", c.node.op->name, c.node.name, conv.batch,
              images);
  return parts;
}

void refuse_convolution(const PrepareContext& c, const Convolution& conv) {
  const bool volumes = conv.window.axes.volumes();
  const auto sizes = [volumes](std::int64_t d, std::int64_t h, std::int64_t w) {
    return volumes ? fmt::format("{} x {} x {}", d, h, w) : fmt::format("{} x {}", h, w);
  };
  c.fail(fmt::format("cuDNN has no {}engine for {} of {} with {} channels under a filter of {}",
                     c.deterministic ? "deterministic " : "", volumes ? "a volume" : "an image",
                     sizes(conv.in_d, conv.in_h, conv.in_w), conv.in_c,
                     sizes(conv.window.d.kernel, conv.window.h.kernel, conv.window.w.kernel)));
}

}  // namespace braid::cuda
