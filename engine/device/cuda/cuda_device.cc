#include "engine/device/cuda/cuda_device.h"

#include <fmt/format.h>
#include <nvtx3/nvToolsExtCudaRt.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>

#include "base/cuda/await.h"
#include "base/cuda/check.h"
#include "base/error.h"
#include "base/huge_pages.h"
#include "base/log.h"
#include "engine/device/cuda/device_memory.h"
#include "engine/device/cuda/labels.h"
#include "engine/device/cuda/sm_partition.h"
#include "engine/device/device_health.h"

namespace braid {
namespace cuda {
namespace {

/// Kernels are prepared for, and launched on, the calling thread's current device. So the thread that opens a
/// device keeps it, as one that binds a program to it, and one that issues work gets it with the copies that
/// begin every step. (A guard would go back to device 0 each time, and so make a context there, in a process
/// that uses another.)
void keep_current(int device) { BRAID_CUDA_CHECK(cudaSetDevice(device)); }

/// Contexts are made as clients of the daemon that CUDA_MPS_PIPE_DIRECTORY names, where it runs. A driver
/// that does not know the attribute has none that could be told.
bool is_mps_client(int device) {
  int enabled = 0;
  if (cudaDeviceGetAttribute(&enabled, cudaDevAttrMpsEnabled, device) == cudaSuccess) return enabled != 0;
  cudaGetLastError();
  return false;
}

/// Page-locked memory that lies on huge pages, where the system has some: the stage fills it at the rate of
/// memory, and looking up small pages takes a part of that time. Zeroed.
std::shared_ptr<std::byte[]> on_huge_pages(std::uint64_t bytes) {
  const auto free = [](std::byte* block) { std::free(block); };
  std::unique_ptr<std::byte[], decltype(free)> memory(static_cast<std::byte*>(allocate_huge_pages(bytes)),
                                                      free);
  if (!memory) throw OutOfMemory(fmt::format("cannot allocate {} bytes of host memory", bytes));
  std::fill_n(memory.get(), bytes, std::byte{0});
  BRAID_CUDA_CHECK(cudaHostRegister(memory.get(), bytes, cudaHostRegisterPortable));
  return {memory.release(), [](std::byte* block) {
            log_failure(cudaHostUnregister(block), "cudaHostUnregister");
            std::free(block);
          }};
}

class CudaEvent final : public DeviceEvent {
 public:
  CudaEvent() : event_(make_event()) {}
  void record(StreamRef stream) override { BRAID_CUDA_CHECK(cudaEventRecord(event_.get(), native(stream))); }
  void wait(StreamRef stream) override {
    BRAID_CUDA_CHECK(cudaStreamWaitEvent(native(stream), event_.get()));
  }
  bool reached() override {
    const cudaError_t status = cudaEventQuery(event_.get());
    if (status == cudaErrorNotReady) return false;
    BRAID_CUDA_CHECK(status);
    return true;
  }

 private:
  Event event_;
};

class CudaGraph final : public DeviceGraph {
 public:
  explicit CudaGraph(GraphExec graph) : graph_(std::move(graph)) {}
  void launch(StreamRef stream) override { BRAID_CUDA_CHECK(cudaGraphLaunch(graph_.get(), native(stream))); }

 private:
  GraphExec graph_;
};

}  // namespace

CudaDevice::CudaDevice(const AcceleratorOptions& options) : options_(options) {
  const int count = cuda_device_count();
  if (count == 0) {
    int driver = 0;
    cudaDriverGetVersion(&driver);
    throw InvalidArgument(
        driver == 0 ? std::string("no CUDA device: there is no NVIDIA driver on this machine")
                    : fmt::format("no usable CUDA device: the driver supports CUDA {}.{}, this build "
                                  "needs {}.{} (CUDA_VISIBLE_DEVICES may also hide all devices)",
                                  driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                                  CUDART_VERSION % 1000 / 10));
  }
  if (options.ordinal < 0 || options.ordinal >= count)
    throw InvalidArgument(fmt::format("CUDA device {} does not exist: {} {} visible", options.ordinal, count,
                                      count == 1 ? "device is" : "devices are"));
  keep_current(options.ordinal);
  BRAID_CUDA_CHECK(cudaGetDeviceProperties(&properties_, options.ordinal));
  memory_ = std::make_shared<DeviceMemory>(options);
  copies_ = make_stream();
  if (cublasLtCreate(&blas_) != CUBLAS_STATUS_SUCCESS)
    throw DeviceError(fmt::format("{}: cublasLtCreate failed", description()));
  log_info("{}: {}", description(),
           is_mps_client(options.ordinal)
               ? "this process is a client of MPS, which runs it beside other processes"
               : "without MPS: all streams are of this process and its one context");
}

CudaDevice::~CudaDevice() {
  log_failure(cudaSetDevice(options_.ordinal), "cudaSetDevice");
  for (const auto& [name, stream] : streams_) forget_stream(stream.get());
  streams_.clear();
  forget_partition(*this);
  if (blas_) cublasLtDestroy(blas_);
}

std::string CudaDevice::description() const {
  return fmt::format("cuda:{} {}", options_.ordinal, properties_.name);
}

void CudaDevice::make_current() { keep_current(ordinal()); }

std::shared_ptr<std::byte[]> CudaDevice::allocate(std::uint64_t bytes, const std::string& purpose) {
  std::shared_ptr<std::byte[]> memory = memory_->allocate(bytes, purpose);
  const DeviceGuard guard(ordinal());
  if (bytes != 0) BRAID_CUDA_CHECK(cudaMemsetAsync(memory.get(), 0, bytes, copies_.get()));
  await_copies("zeroing memory");
  return memory;
}

std::shared_ptr<std::byte[]> CudaDevice::allocate_pinned(std::uint64_t bytes, const std::string&) {
  const DeviceGuard guard(ordinal());
  if (bytes >= kLargeBlockBytes) {
    std::shared_ptr<std::byte[]> memory = on_huge_pages(bytes);
    pinned_->add(memory.get(), bytes);
    return {memory.get(), [pinned = pinned_, memory](std::byte* block) mutable {
              pinned->remove(block);
              memory.reset();
            }};
  }
  auto memory = std::make_unique<PinnedMemory>(bytes);
  std::byte* const raw = memory->get();
  std::fill_n(raw, bytes, std::byte{0});
  pinned_->add(raw, bytes);
  return {raw, [pinned = pinned_, memory = std::move(memory)](std::byte* block) mutable {
            pinned->remove(block);
            memory.reset();
          }};
}

bool CudaDevice::is_pinned(const void* memory, std::uint64_t bytes) const {
  return pinned_->contains(memory, bytes);
}

std::uint64_t CudaDevice::bytes_in_use() const { return memory_->in_use(); }

void CudaDevice::copy_now(void* to, const void* from, std::uint64_t bytes) {
  if (bytes == 0) return;
  const DeviceGuard guard(ordinal());
  BRAID_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, copies_.get()));
  await_copies("a copy");
}

void CudaDevice::await_copies(const char* what) {
  await_stream(copies_.get(), WaitContext::with_timeout(options_.wait_timeout),
               fmt::format("cuda:{}: {}", ordinal(), what));
}

void CudaDevice::copy(void* to, const void* from, std::uint64_t bytes, StreamRef stream) {
  keep_current(ordinal());
  BRAID_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, native(stream)));
}

void CudaDevice::fill_zero(void* to, std::uint64_t bytes, StreamRef stream) {
  keep_current(ordinal());
  BRAID_CUDA_CHECK(cudaMemsetAsync(to, 0, bytes, native(stream)));
}

StreamRef CudaDevice::stream(const std::string& name, int priority) {
  std::lock_guard lock(mu_);
  // A stream keeps the priority that it is made with.
  Stream& stream = streams_[priority == 0 ? name : fmt::format("{}, priority {}", name, priority)];
  if (!stream) {
    const DeviceGuard guard(ordinal());
    const int native_priority = -priority;  // CUDA's lower numbers go first
    stream = make_stream_of_share(*this, name, native_priority);
    if (!stream) stream = make_stream(native_priority);
    nvtxNameCudaStreamA(stream.get(), name.c_str());
    remember_stream(stream.get(), name);
  }
  return {StreamKind::Cuda, stream.get()};
}

std::unique_ptr<DeviceEvent> CudaDevice::make_event() {
  const DeviceGuard guard(ordinal());
  return std::make_unique<CudaEvent>();
}

void CudaDevice::begin_capture(StreamRef stream) {
  // Thread-local: other threads of the process may go on allocating.
  BRAID_CUDA_CHECK(cudaStreamBeginCapture(native(stream), cudaStreamCaptureModeThreadLocal));
}

std::unique_ptr<DeviceGraph> CudaDevice::end_capture(StreamRef stream) {
  cudaGraph_t captured = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(native(stream), &captured);
  const Graph graph(captured);
  BRAID_CUDA_CHECK(ended);
  cudaGraphExec_t exec = nullptr;
  BRAID_CUDA_CHECK(cudaGraphInstantiate(&exec, graph.get(), 0));
  // The first launch uploads it. cudaGraphUpload() would do so now, but with driver 580 graphs of many
  // streams that were uploaded so hang, or end with "unspecified launch failure" (Xid 13, a dependence
  // counter's underflow), where other processes share the GPU: 13 of 20 jobs did, and none of 60 without it.
  return std::make_unique<CudaGraph>(GraphExec(exec));
}

void CudaDevice::abandon_capture(StreamRef stream) noexcept {
  cudaStreamCaptureStatus status{};
  if (cudaStreamIsCapturing(native(stream), &status) != cudaSuccess || status == cudaStreamCaptureStatusNone)
    return;
  cudaGraph_t captured = nullptr;
  static_cast<void>(cudaStreamEndCapture(native(stream), &captured));
  cudaGetLastError();
  const Graph graph(captured);
}

void CudaDevice::push_range(const char* name) { nvtxRangePushA(name); }
void CudaDevice::pop_range() { nvtxRangePop(); }

void CudaDevice::synchronize(const WaitContext& wait) {
  await_device(ordinal(), wait, fmt::format("cuda:{}: work of the device", ordinal()));
}

}  // namespace cuda

int cuda_device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return count;
}

std::string cuda_bus_id(int ordinal) {
  std::array<char, 32> text{};
  BRAID_CUDA_CHECK(cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), ordinal));
  std::string name = text.data();
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

std::uint64_t cuda_device_memory(int ordinal) {
  cudaDeviceProp properties{};
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, ordinal); error != cudaSuccess) {
    cudaGetLastError();
    throw InvalidArgument(fmt::format("CUDA device {}: {}", ordinal, cudaGetErrorString(error)));
  }
  return properties.totalGlobalMem;
}

std::shared_ptr<Accelerator> open_cuda(const AcceleratorOptions& options) {
  return std::make_shared<cuda::CudaDevice>(options);
}

}  // namespace braid
