#include "engine/ops/nn/convolution.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "engine/ops/common/dnnl_engine.h"
#include "engine/ops/common/kernel_util.h"

namespace braid {
namespace {

using dnnl::algorithm;
using dnnl::convolution_backward_data;
using dnnl::convolution_backward_weights;
using dnnl::convolution_forward;
using dnnl::memory;
using dnnl::prop_kind;
using tag = memory::format_tag;

constexpr double kBlockFlops = 2e6;      // some 20 us of one core: well above the cost of handing out a block
constexpr std::int64_t kMaxBlocks = 16;  // each has its own scratchpad, and for filters its own sum
// Every block reads the filter, or makes a part of its gradient. One that no core's cache holds is worth it
// for so many positions of the output.
constexpr double kLargeFilterBytes = 1 << 20;
constexpr double kLargeFilterPositions = 256;

/// The batch's blocks: all of `images` images but the last, which may have fewer.
struct Blocks {
  std::int64_t images, count, last_images;
  explicit Blocks(const Convolution& conv) {
    const auto batch = static_cast<double>(conv.batch);
    double most = std::min(conv.batch, kMaxBlocks);
    if (conv.filter_bytes() > kLargeFilterBytes)
      most = std::min(most, batch * static_cast<double>(conv.out_places()) / kLargeFilterPositions);
    const auto wanted = static_cast<std::int64_t>(
        std::clamp(conv.flops_an_image() * batch / kBlockFlops, 1.0, std::max(most, 1.0)));
    images = (conv.batch + wanted - 1) / wanted;
    count = (conv.batch + images - 1) / images;
    last_images = conv.batch - (count - 1) * images;
  }
};

/// oneDNN's description of the convolution of `images` images.
struct Description {
  const Convolution& conv;

  memory::desc in(std::int64_t images) const {
    return image(images, conv.in_c, {conv.in_d, conv.in_h, conv.in_w});
  }
  memory::desc out(std::int64_t images) const {
    return image(images, conv.out_c, {conv.out_d, conv.out_h, conv.out_w});
  }
  memory::desc image(std::int64_t n, std::int64_t c, const memory::dims& places) const {
    const bool first = conv.window.axes.nchw();
    memory::dims sizes{n, c};
    append(sizes, places);
    if (is_volume()) return {sizes, memory::data_type::f32, first ? tag::ncdhw : tag::ndhwc};
    return {sizes, memory::data_type::f32, first ? tag::nchw : tag::nhwc};
  }
  /// The filter as the graph has it, or in any layout.
  memory::desc filter(bool any) const {
    memory::dims sizes{conv.out_c, conv.in_c};
    if (conv.groups != 1) sizes = {conv.groups, conv.out_c / conv.groups, conv.in_c / conv.groups};
    append(sizes, {conv.window.d.kernel, conv.window.h.kernel, conv.window.w.kernel});
    return {sizes, memory::data_type::f32, any ? tag::any : own_order()};
  }
  tag own_order() const {
    if (conv.outputs_first)
      return conv.groups == 1 ? (is_volume() ? tag::odhwi : tag::ohwi)
                              : (is_volume() ? tag::godhwi : tag::gohwi);
    return conv.groups == 1 ? (is_volume() ? tag::dhwio : tag::hwio)
                            : (is_volume() ? tag::dhwigo : tag::hwigo);
  }
  memory::dims strides() const { return of_axes(&WindowAxis::stride); }
  memory::dims dilations() const {  // oneDNN counts what lies between
    memory::dims between = of_axes(&WindowAxis::dilation);
    for (auto& each : between) --each;
    return between;
  }
  memory::dims before() const { return of_axes(&WindowAxis::pad_before); }
  memory::dims after() const { return of_axes(&WindowAxis::pad_after); }

  bool is_volume() const { return conv.window.axes.volumes(); }
  /// The sizes of depth, height and width; an image has no depth.
  void append(memory::dims& sizes, const memory::dims& places) const {
    sizes.insert(sizes.end(), places.begin() + (is_volume() ? 0 : 1), places.end());
  }
  memory::dims of_axes(std::int64_t WindowAxis::*member) const {
    memory::dims numbers;
    append(numbers, {conv.window.d.*member, conv.window.h.*member, conv.window.w.*member});
    return numbers;
  }

  static dnnl::primitive_attr attributes() {
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return attr;
  }
  convolution_forward::primitive_desc forward(std::int64_t images, const memory::desc& weights) const {
    return {convolution_forward::desc(prop_kind::forward_training, algorithm::convolution_direct, in(images),
                                      weights, out(images), strides(), dilations(), before(), after()),
            attributes(), dnnl_cpu_engine()};
  }
  convolution_backward_data::primitive_desc backward_input(std::int64_t images,
                                                           const memory::desc& weights) const {
    return {convolution_backward_data::desc(algorithm::convolution_direct, in(images), weights, out(images),
                                            strides(), dilations(), before(), after()),
            attributes(), dnnl_cpu_engine(), forward(images, filter(true))};
  }
  convolution_backward_weights::primitive_desc backward_filter(std::int64_t images,
                                                               const memory::desc& weights) const {
    return {convolution_backward_weights::desc(algorithm::convolution_direct, in(images), weights,
                                               out(images), strides(), dilations(), before(), after()),
            attributes(), dnnl_cpu_engine(), forward(images, filter(true))};
  }
};

memory unbound(const memory::desc& desc) { return {desc, dnnl_cpu_engine(), DNNL_MEMORY_NONE}; }

DnnlCall reorder_call(const memory::desc& from, const memory::desc& to) {
  dnnl::engine& engine = dnnl_cpu_engine();
  return {dnnl::reorder(dnnl::reorder::primitive_desc(engine, from, engine, to)),
          {{DNNL_ARG_FROM, unbound(from)}, {DNNL_ARG_TO, unbound(to)}}};
}

std::size_t padded(std::size_t bytes) { return dnnl_scratch_bytes(bytes); }

/// What oneDNN writes behind the scratchpad that it asks for, in gradients of 1 x 1 filters with strides. It
/// copies the places that are read, and makes room for their channels, but stores whole vectors of them: seen
/// in 2.6 (jit_1x1:avx2) for fewer than 8 channels. Vectors of 16 are counted on.
std::size_t behind_scratchpad(const Convolution& conv) {
  const Window& window = conv.window;
  if (conv.taps() != 1 || window.d.stride * window.h.stride * window.w.stride == 1) return 0;
  constexpr std::int64_t kVector = 16;
  const std::int64_t channels = (conv.in_c + kVector - 1) / kVector * kVector - conv.in_c;
  return padded(static_cast<std::size_t>(conv.out_places() * channels) * sizeof(float));
}

/// The calls of one pass over the batch, a call a block. `Filter` data is in the primitive's own layout.
struct BlockCalls {
  std::vector<DnnlCall> calls;
  memory::desc filter;            // the primitive's layout
  std::size_t scratch_bytes = 0;  // of one block

  /// `describe(images, filter layout)` gives the primitive descriptor, `bind(descriptor)` the call.
  template <class Describe, class Bind>
  BlockCalls(const Blocks& blocks, const memory::desc& any, Describe describe, Bind bind) {
    const auto whole = describe(blocks.images, any);
    filter = filter_of(whole);
    scratch_bytes = padded(whole.scratchpad_desc().get_size());
    for (std::int64_t b = 0; b + 1 < blocks.count; ++b) calls.push_back(bind(whole));
    if (blocks.last_images == blocks.images) {
      calls.push_back(bind(whole));
    } else {
      const auto last = describe(blocks.last_images, filter);
      scratch_bytes = std::max(scratch_bytes, padded(last.scratchpad_desc().get_size()));
      calls.push_back(bind(last));
    }
  }

 private:
  static memory::desc filter_of(const convolution_forward::primitive_desc& d) { return d.weights_desc(); }
  static memory::desc filter_of(const convolution_backward_data::primitive_desc& d) {
    return d.weights_desc();
  }
  static memory::desc filter_of(const convolution_backward_weights::primitive_desc& d) {
    return d.diff_weights_desc();
  }
};

/// Forward and backward-input: from images and a filter to images.
struct ImagePass {
  BlockCalls blocks;
  std::unique_ptr<DnnlCall> reorder;  // null: the primitive takes the filter as it is
  std::size_t filter_bytes = 0;       // of the reordered filter, in front of the blocks' scratchpads
  std::int64_t from_step, to_step;    // elements from block to block

  ImagePass(BlockCalls calls, const memory::desc& user_filter, std::int64_t from, std::int64_t to)
      : blocks(std::move(calls)), from_step(from), to_step(to) {
    if (blocks.filter == user_filter) return;
    reorder = std::make_unique<DnnlCall>(reorder_call(user_filter, blocks.filter));
    filter_bytes = padded(blocks.filter.get_size());
  }

  std::size_t scratch_bytes() const { return filter_bytes + blocks.scratch_bytes * blocks.calls.size(); }

  void run(ThreadPool& pool, const float* from, const float* filter, float* to, void* scratch) const {
    if (reorder) {
      reorder->execute({filter, scratch});
      filter = static_cast<const float*>(scratch);
    }
    char* pads = static_cast<char*>(scratch) + filter_bytes;
    pool.parallel_for(static_cast<std::int64_t>(blocks.calls.size()), [&](std::int64_t b) {
      blocks.calls[static_cast<std::size_t>(b)].execute(
          {from + b * from_step, filter, to + b * to_step,
           pads + static_cast<std::size_t>(b) * blocks.scratch_bytes});
    });
  }
};

PreparedKernel image_kernel(const PrepareContext& c, std::shared_ptr<const ImagePass> pass, int from,
                            int filter) {
  PreparedKernel kernel;
  kernel.scratch_bytes = pass->scratch_bytes();
  kernel.run = [pass, from, filter, pool = &c.pool](const KernelArgs& a) {
    pass->run(*pool, a.in<float>(from), a.in<float>(filter), a.out<float>(0), a.scratch);
  };
  return kernel;
}

/// Zeros in output 0: what a convolution over nothing gives.
PreparedKernel zero_kernel(const PrepareContext& c) {
  const std::size_t bytes = static_cast<std::size_t>(c.outputs[0].shape.elements()) * sizeof(float);
  return serial_kernel([bytes](const KernelArgs& a) { std::memset(a.outputs[0], 0, bytes); });
}

BRAID_VECTOR_CLONES void add_to(float* sum, const float* part, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) sum[i] += part[i];
}

/// Backward-filter: each block's part in the primitive's layout, their sum, and the layout of the graph.
struct FilterPass {
  BlockCalls blocks;
  std::unique_ptr<DnnlCall> reorder;  // null: the layouts are one
  std::size_t part_bytes;
  std::int64_t in_step, out_step;

  std::size_t scratch_bytes() const { return (part_bytes + blocks.scratch_bytes) * blocks.calls.size(); }

  void run(ThreadPool& pool, const float* in, const float* out_gradient, float* gradient,
           void* scratch) const {
    const auto count = static_cast<std::int64_t>(blocks.calls.size());
    char* parts = static_cast<char*>(scratch);
    char* pads = parts + part_bytes * blocks.calls.size();
    const auto part = [&](std::int64_t b) {
      return reinterpret_cast<float*>(parts + static_cast<std::size_t>(b) * part_bytes);
    };
    pool.parallel_for(count, [&](std::int64_t b) {
      blocks.calls[static_cast<std::size_t>(b)].execute(
          {in + b * in_step, out_gradient + b * out_step, part(b),
           pads + static_cast<std::size_t>(b) * blocks.scratch_bytes});
    });
    const auto elements = static_cast<std::int64_t>(blocks.filter.get_size() / sizeof(float));
    pool.parallel_range(elements, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = 1; b < count; ++b) add_to(part(0) + begin, part(b) + begin, end - begin);
    });
    if (reorder)
      reorder->execute({part(0), gradient});
    else
      std::memcpy(gradient, part(0), blocks.filter.get_size());
  }
};

}  // namespace

PreparedKernel prepare_convolution(const PrepareContext& c, const Convolution& conv) {
  if (conv.is_empty()) return zero_kernel(c);
  const Blocks blocks(conv);
  const Description d{conv};
  BlockCalls calls(
      blocks, d.filter(true),
      [&](std::int64_t images, const memory::desc& filter) { return d.forward(images, filter); },
      [](const convolution_forward::primitive_desc& p) {
        return DnnlCall(convolution_forward(p), {{DNNL_ARG_SRC, unbound(p.src_desc())},
                                                 {DNNL_ARG_WEIGHTS, unbound(p.weights_desc())},
                                                 {DNNL_ARG_DST, unbound(p.dst_desc())},
                                                 {DNNL_ARG_SCRATCHPAD, unbound(p.scratchpad_desc())}});
      });
  return image_kernel(
      c,
      std::make_shared<ImagePass>(std::move(calls), d.filter(false), blocks.images * conv.in_image(),
                                  blocks.images * conv.out_image()),
      0, 1);
}

PreparedKernel prepare_convolution_backward_input(const PrepareContext& c, const Convolution& conv) {
  if (conv.is_empty()) return zero_kernel(c);
  const Blocks blocks(conv);
  const Description d{conv};
  BlockCalls calls(
      blocks, d.filter(true),
      [&](std::int64_t images, const memory::desc& filter) { return d.backward_input(images, filter); },
      [](const convolution_backward_data::primitive_desc& p) {
        return DnnlCall(convolution_backward_data(p), {{DNNL_ARG_DIFF_DST, unbound(p.diff_dst_desc())},
                                                       {DNNL_ARG_WEIGHTS, unbound(p.weights_desc())},
                                                       {DNNL_ARG_DIFF_SRC, unbound(p.diff_src_desc())},
                                                       {DNNL_ARG_SCRATCHPAD, unbound(p.scratchpad_desc())}});
      });
  return image_kernel(
      c,
      std::make_shared<ImagePass>(std::move(calls), d.filter(false), blocks.images * conv.out_image(),
                                  blocks.images * conv.in_image()),
      2, 1);
}

PreparedKernel prepare_convolution_backward_filter(const PrepareContext& c, const Convolution& conv) {
  if (conv.is_empty()) return zero_kernel(c);
  const Blocks blocks(conv);
  const Description d{conv};
  BlockCalls calls(
      blocks, d.filter(true),
      [&](std::int64_t images, const memory::desc& filter) { return d.backward_filter(images, filter); },
      [](const convolution_backward_weights::primitive_desc& p) {
        return DnnlCall(convolution_backward_weights(p),
                        {{DNNL_ARG_SRC, unbound(p.src_desc())},
                         {DNNL_ARG_DIFF_DST, unbound(p.diff_dst_desc())},
                         {DNNL_ARG_DIFF_WEIGHTS, unbound(p.diff_weights_desc())},
                         {DNNL_ARG_SCRATCHPAD, unbound(p.scratchpad_desc())}});
      });
  auto pass = std::make_shared<FilterPass>(FilterPass{
      std::move(calls), nullptr, 0, blocks.images * conv.in_image(), blocks.images * conv.out_image()});
  pass->part_bytes = padded(pass->blocks.filter.get_size());
  pass->blocks.scratch_bytes += behind_scratchpad(conv);
  if (pass->blocks.filter != d.filter(false))
    pass->reorder = std::make_unique<DnnlCall>(reorder_call(pass->blocks.filter, d.filter(false)));
  PreparedKernel kernel;
  kernel.scratch_bytes = pass->scratch_bytes();
  kernel.run = [pass, pool = &c.pool](const KernelArgs& a) {
    pass->run(*pool, a.in<float>(0), a.in<float>(2), a.out<float>(0), a.scratch);
  };
  return kernel;
}

}  // namespace braid
