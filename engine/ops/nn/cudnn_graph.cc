#include "engine/ops/nn/cudnn_graph.h"

#include <cudnn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.h"
#include "engine/device/cuda/cuda_device.h"

// The handles of graphs and plans are said to be deprecated by newer releases, and needed by older ones.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace braid::cuda {
namespace {

void check(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS)
    throw_error(ErrorCode::DeviceError,
                fmt::format("cuDNN: {} failed: {}", what, cudnnGetErrorString(status)));
}

/// cuDNN's state on a device: plans share one and take turns to call it.
struct Library {
  cudnnHandle_t handle = nullptr;
  std::mutex mu;  // a call goes to the handle's stream

  explicit Library(int device) {
    const DeviceGuard guard(device);
    check(cudnnCreate(&handle), "cudnnCreate");
  }
  Library(const Library&) = delete;
  ~Library() { cudnnDestroy(handle); }

  /// That of a device; it goes when the last plan does.
  static std::shared_ptr<Library> of(int device) {
    static std::mutex mu;
    static std::map<int, std::weak_ptr<Library>> libraries;
    const std::lock_guard lock(mu);
    auto& known = libraries[device];
    if (auto library = known.lock()) return library;
    auto made = std::make_shared<Library>(device);
    known = made;
    return made;
  }
};

/// A descriptor of the graph API, which is given back at the end.
class Descriptor {
 public:
  Descriptor(cudnnBackendDescriptorType_t type, const char* what) : what_(what) {
    cudnnBackendDescriptor_t made = nullptr;
    check(cudnnBackendCreateDescriptor(type, &made), what);
    descriptor_.reset(made, [](cudnnBackendDescriptor_t d) { cudnnBackendDestroyDescriptor(d); });
  }

  template <class T>
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
                  const T* values) {
    check(cudnnBackendSetAttribute(get(), name, type, count, values), what_);
    return *this;
  }
  Descriptor& set(cudnnBackendAttributeName_t name, std::int64_t value) {
    return set(name, CUDNN_TYPE_INT64, 1, &value);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
    return set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnHandle_t value) {
    return set(name, CUDNN_TYPE_HANDLE, 1, &value);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& value) {
    const cudnnBackendDescriptor_t raw = value.get();
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
  }
  bool try_finalize() { return cudnnBackendFinalize(get()) == CUDNN_STATUS_SUCCESS; }
  Descriptor& finalize() {
    check(cudnnBackendFinalize(get()), what_);
    return *this;
  }
  cudnnBackendDescriptor_t get() const { return descriptor_.get(); }

 private:
  const char* what_;
  std::shared_ptr<void> descriptor_;
};

cudnnDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::Float16:
      return CUDNN_DATA_HALF;
    case DType::BFloat16:
      return CUDNN_DATA_BFLOAT16;
    default:
      return CUDNN_DATA_FLOAT;
  }
}

/// The notes of an engine that decide whether it may be taken.
struct Notes {
  bool nondeterministic = false, tensor_cores = false, narrows_inputs = false, coarse = false;
};

Notes notes_of(const Descriptor& engine) {
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  std::int64_t count = 0;
  check(cudnnBackendGetAttribute(engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                 CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes),
        "the notes of an engine");
  Notes found;
  for (std::int64_t i = 0; i < count; ++i) switch (notes[i]) {
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
        found.nondeterministic = true;
        break;
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
        found.tensor_cores = true;
        break;
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
        found.narrows_inputs = true;
        break;
      case CUDNN_NUMERICAL_NOTE_FFT:
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
        found.coarse = true;
        break;
      default:
        break;
    }
  return found;
}

Descriptor engine_of(const Descriptor& config) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR, "an engine");
  cudnnBackendDescriptor_t raw = engine.get();
  std::int64_t count = 0;
  check(cudnnBackendGetAttribute(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                 &count, &raw),
        "an engine");
  return engine;
}

/// What the heuristics suggest, best guess first.
std::vector<Descriptor> suggestions(const Descriptor& graph, cudnnBackendHeurMode_t mode) {
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "heuristics");
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (!heuristics.try_finalize()) return {};
  std::int64_t count = 0;
  if (cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                               0, &count, nullptr) != CUDNN_STATUS_SUCCESS)
    return {};
  std::vector<Descriptor> configs;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < count; ++i) {
    configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "an engine's configuration");
    raw.push_back(configs.back().get());
  }
  std::int64_t got = 0;
  check(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &got, raw.data()),
        "heuristics");
  configs.erase(configs.begin() + got, configs.end());
  return configs;
}

}  // namespace

struct CudnnGraph::State {
  CudaDevice& device;
  std::shared_ptr<Library> library;
  std::vector<Descriptor> tensors, operations;
  std::vector<char> is_inner;
  std::string text;

  int add(const CudnnTensor& t, bool inner) {
    const auto id = static_cast<std::int64_t>(tensors.size());
    const std::size_t rank = t.sizes.size();
    std::vector<std::int64_t> strides(rank);
    std::int64_t stride = t.channels_last ? t.sizes[1] : 1;  // of the axes from the last one on
    for (std::size_t axis = rank - 1; axis > 1; --axis) {
      strides[axis] = stride;
      stride *= t.sizes[axis];
    }
    strides[1] = t.channels_last ? 1 : stride;
    strides[0] = t.channels_last ? stride : stride * t.sizes[1];
    const bool yes = true;
    Descriptor d(CUDNN_BACKEND_TENSOR_DESCRIPTOR, "a tensor");
    d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id)
        .set(CUDNN_ATTR_TENSOR_DATA_TYPE, type_of(t.dtype))
        .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, t.alignment_bytes)
        .set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, static_cast<std::int64_t>(rank), t.sizes.data())
        .set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, static_cast<std::int64_t>(rank), strides.data());
    if (inner) d.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    tensors.push_back(d.finalize());
    is_inner.push_back(inner);
    text += fmt::format("{} {} {} of {}{}, ", fmt::join(t.sizes, " "), t.channels_last ? "last" : "first",
                        dtype_name(t.dtype), t.alignment_bytes, inner ? " inner" : "");
    return static_cast<int>(id);
  }
  const Descriptor& at(int tensor) const { return tensors[static_cast<std::size_t>(tensor)]; }

  void pointwise(cudnnPointwiseMode_t mode, int x, int b, int y) {
    Descriptor how(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "an elementwise operation");
    how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode)
        .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT)
        .finalize();
    Descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "an elementwise operation");
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how)
        .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, at(x))
        .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, at(y));
    if (b >= 0) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, at(b));
    operations.push_back(operation.finalize());
    text += fmt::format("elementwise {}: {} {} {}, ", static_cast<int>(mode), x, b, y);
  }
};

CudnnGraph::CudnnGraph(CudaDevice& device)
    : state_(new State{.device = device,
                       .library = Library::of(device.ordinal()),
                       .tensors = {},
                       .operations = {},
                       .is_inner = {},
                       .text = {}}) {}
CudnnGraph::~CudnnGraph() = default;

int CudnnGraph::tensor(const CudnnTensor& tensor) { return state_->add(tensor, false); }
int CudnnGraph::inner(const CudnnTensor& tensor) { return state_->add(tensor, true); }

void CudnnGraph::convolve(ConvolutionPass pass, const Convolution& conv, int images, int filter,
                          int outputs) {
  std::vector<WindowAxis> axes{conv.window.h, conv.window.w};
  if (conv.window.axes.volumes()) axes.insert(axes.begin(), conv.window.d);
  const auto rank = static_cast<std::int64_t>(axes.size());
  std::vector<std::int64_t> before, after, strides, dilations;
  for (const WindowAxis& axis : axes) {
    before.push_back(axis.pad_before);
    after.push_back(axis.pad_after);
    strides.push_back(axis.stride);
    dilations.push_back(axis.dilation);
  }
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  Descriptor how(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, "a convolution");
  how.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode)
      .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, rank)
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, rank, before.data())
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, rank, after.data())
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, rank, strides.data())
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, rank, dilations.data())
      .finalize();
  const float one = 1, zero = 0;
  const auto operation = [&](cudnnBackendDescriptorType_t type, cudnnBackendAttributeName_t alpha,
                             cudnnBackendAttributeName_t beta, cudnnBackendAttributeName_t of,
                             cudnnBackendAttributeName_t x, cudnnBackendAttributeName_t f,
                             cudnnBackendAttributeName_t y) {
    Descriptor d(type, "a convolution");
    d.set(of, how)
        .set(x, state_->at(images))
        .set(f, state_->at(filter))
        .set(y, state_->at(outputs))
        .set(alpha, CUDNN_TYPE_FLOAT, 1, &one)
        .set(beta, CUDNN_TYPE_FLOAT, 1, &zero);
    state_->operations.push_back(d.finalize());
  };
  switch (pass) {
    case ConvolutionPass::Forward:
      operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
      break;
    case ConvolutionPass::BackwardInput:
      operation(
          CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY);
      break;
    case ConvolutionPass::BackwardFilter:
      operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY);
      break;
  }
  state_->text += fmt::format("convolution {} pads", static_cast<int>(pass));
  for (const WindowAxis& axis : axes) state_->text += fmt::format(" {} {}", axis.pad_before, axis.pad_after);
  state_->text += fmt::format(" strides {} dilations {}: {} {} {}, ", fmt::join(strides, " "),
                              fmt::join(dilations, " "), images, filter, outputs);
}

void CudnnGraph::add(int a, int b, int y) { state_->pointwise(CUDNN_POINTWISE_ADD, a, b, y); }
void CudnnGraph::relu(int x, int y) { state_->pointwise(CUDNN_POINTWISE_RELU_FWD, x, -1, y); }

std::string CudnnGraph::key() const {
  return fmt::format("cudnn {} on {}: {}", cudnnGetVersion(), state_->device.properties().name, state_->text);
}

std::vector<CudnnPlan> CudnnGraph::plans(const CudnnLimits& limits) const {
  const DeviceGuard guard(state_->device.ordinal());
  const std::shared_ptr<Library> library = state_->library;
  const std::lock_guard lock(library->mu);
  Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "a graph");
  std::vector<cudnnBackendDescriptor_t> operations;
  for (const Descriptor& operation : state_->operations) operations.push_back(operation.get());
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, library->handle)
      .set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
           static_cast<std::int64_t>(operations.size()), operations.data());
  if (!graph.try_finalize()) return {};

  std::vector<std::int64_t> ids;
  for (std::size_t i = 0; i < state_->is_inner.size(); ++i)
    if (!state_->is_inner[i]) ids.push_back(static_cast<std::int64_t>(i));

  std::vector<CudnnPlan> plans;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    int number = 0;
    for (const Descriptor& config : suggestions(graph, mode)) {
      ++number;
      if (static_cast<int>(plans.size()) >= limits.most_plans) break;
      const Descriptor engine = engine_of(config);
      const Notes notes = notes_of(engine);
      if ((limits.deterministic && notes.nondeterministic) || (!limits.tensor_cores && notes.tensor_cores) ||
          notes.narrows_inputs || notes.coarse)
        continue;
      Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "a plan");
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, library->handle)
          .set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
      if (!plan.try_finalize()) continue;
      std::int64_t workspace = 0, index = -1, count = 0;
      check(cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                                     1, &count, &workspace),
            "a plan's workspace");
      if (workspace < 0 || static_cast<std::size_t>(workspace) > limits.most_workspace_bytes) continue;
      check(cudnnBackendGetAttribute(engine.get(), CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
                                     &count, &index),
            "an engine's number");
      CudnnPlan made;
      made.engine =
          fmt::format("{}{}: engine {}", mode == CUDNN_HEUR_MODE_A ? "guess " : "fallback ", number, index);
      made.workspace_bytes = static_cast<std::size_t>(workspace);
      made.run = [library, plan, ids](std::span<void* const> tensors, void* memory, StreamRef stream) {
        std::vector<void*> pointers;
        for (const std::int64_t id : ids) pointers.push_back(tensors[static_cast<std::size_t>(id)]);
        const auto known = static_cast<std::int64_t>(ids.size());
        Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "a run");
        pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, known, ids.data())
            .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, known, pointers.data())
            .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &memory)
            .finalize();
        const std::lock_guard turn(library->mu);
        check(cudnnSetStream(library->handle, native(stream)), "cudnnSetStream");
        check(cudnnBackendExecute(library->handle, plan.get(), pack.get()), "a plan");
      };
      plans.push_back(std::move(made));
    }
    if (plans.size() >= 2) break;  // fall-backs are for where there is little else
  }
  return plans;
}

}  // namespace braid::cuda
