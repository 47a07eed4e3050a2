// What a share of the multiprocessors (green contexts) is to kernels: which ones they run on, launched from a
// stream of the share, or by a graph that was captured from it, and how long a small kernel waits beside a
// long one with and without shares. For `streams.partition`, which asks whether a captured step keeps them.
//
//   nvcc -O3 -std=c++20 -arch=sm_90 sm_partition.cu -o sm_partition -lcuda && ./sm_partition [SMALL_SMS]
//   ./sm_partition SMALL_SMS small|large SECONDS: kernels of one share alone, for processes side by side
//   (MPS)
//
// Prints lines for people.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* text = nullptr;
  cuGetErrorString(result, &text);
  std::printf("%s: %s\n", what, text ? text : "?");
  std::exit(1);
}

void check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(result));
  std::exit(1);
}

/// Each block says where it ran, and stays for so many cycles.
__global__ void stay(unsigned* ran_on, long long cycles) {
  if (threadIdx.x == 0) {
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    atomicAdd(ran_on + sm, 1U);
  }
  const long long begin = clock64();
  while (clock64() - begin < cycles) {
  }
}

constexpr int kSms = 256;
constexpr long long kShort = 20'000, kLong = 40'000;  // about 10 and 20 us

struct Share {
  CUgreenCtx context{};
  CUstream stream{};
};

Share make_share(CUdevice device, const CUdevResource& sms) {
  Share share;
  CUdevResource own = sms;
  CUdevResourceDesc description{};
  check(cuDevResourceGenerateDesc(&description, &own, 1), "cuDevResourceGenerateDesc");
  check(cuGreenCtxCreate(&share.context, description, device, CU_GREEN_CTX_DEFAULT_STREAM),
        "cuGreenCtxCreate");
  check(cuGreenCtxStreamCreate(&share.stream, share.context, CU_STREAM_NON_BLOCKING, 0),
        "cuGreenCtxStreamCreate");
  return share;
}

class Seen {
 public:
  Seen() {
    check(cudaMalloc(&memory_, kSms * sizeof(unsigned)), "cudaMalloc");
    clear();
  }
  void clear() { check(cudaMemset(memory_, 0, kSms * sizeof(unsigned)), "cudaMemset"); }
  unsigned* get() const { return memory_; }
  int sms() const { return static_cast<int>(list().size()); }
  std::vector<int> list() const {
    std::vector<unsigned> counts(kSms);
    check(cudaMemcpy(counts.data(), memory_, kSms * sizeof(unsigned), cudaMemcpyDeviceToHost), "cudaMemcpy");
    std::vector<int> ran_on;
    for (int sm = 0; sm < kSms; ++sm)
      if (counts[static_cast<std::size_t>(sm)] != 0) ran_on.push_back(sm);
    return ran_on;
  }

 private:
  unsigned* memory_ = nullptr;
};

cudaGraphExec_t captured_fork(cudaStream_t origin, cudaStream_t first, cudaStream_t second, unsigned* a,
                              unsigned* b) {
  cudaEvent_t fork, joined[2];
  check(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming), "event");
  for (cudaEvent_t& event : joined) check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event");
  check(cudaStreamBeginCapture(origin, cudaStreamCaptureModeThreadLocal), "begin capture");
  check(cudaEventRecord(fork, origin), "fork");
  check(cudaStreamWaitEvent(first, fork, 0), "fork to the first share");
  check(cudaStreamWaitEvent(second, fork, 0), "fork to the second share");
  stay<<<2048, 128, 0, first>>>(a, kShort);
  check(cudaGetLastError(), "launch on the first share");
  stay<<<2048, 128, 0, second>>>(b, kShort);
  check(cudaGetLastError(), "launch on the second share");
  check(cudaEventRecord(joined[0], first), "join the first share");
  check(cudaEventRecord(joined[1], second), "join the second share");
  for (cudaEvent_t event : joined) check(cudaStreamWaitEvent(origin, event, 0), "join");
  cudaGraph_t graph{};
  check(cudaStreamEndCapture(origin, &graph), "end capture");
  cudaGraphExec_t made{};
  check(cudaGraphInstantiate(&made, graph, 0), "instantiate");
  return made;
}

/// Microseconds of a small kernel on `small`, again and again, while long ones run on `large`.
void latency(const char* what, cudaStream_t small, cudaStream_t large) {
  Seen seen;
  std::vector<float> times;
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  for (int round = 0; round < 200; ++round) {
    if (large) stay<<<132 * 32, 512, 0, large>>>(seen.get(), kLong);
    check(cudaEventRecord(begin, small), "record");
    stay<<<16, 128, 0, small>>>(seen.get(), 2'000);
    check(cudaEventRecord(end, small), "record");
    check(cudaEventSynchronize(end), "wait");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "elapsed");
    times.push_back(1e3F * ms);
    if (large) check(cudaStreamSynchronize(large), "wait");
  }
  std::sort(times.begin(), times.end());
  std::printf("%-52s median %7.1f us, p99 %7.1f us\n", what, times[times.size() / 2],
              times[times.size() * 99 / 100]);
}

/// What a stream of a share can do with an event of the primary context, and with one of its own.
void try_events(const Share& share) {
  const auto tried = [&](const char* what, cudaEvent_t event) {
    const cudaError_t result = cudaEventRecord(event, share.stream);
    std::printf("record of an event of %s on a share's stream: %s\n", what, cudaGetErrorString(result));
    cudaGetLastError();
  };
  cudaEvent_t primary{}, own{};
  check(cudaEventCreateWithFlags(&primary, cudaEventDisableTiming), "event");
  tried("the primary context", primary);
  CUcontext context{};
  check(cuCtxFromGreenCtx(&context, share.context), "cuCtxFromGreenCtx");
  check(cuCtxPushCurrent(context), "cuCtxPushCurrent");
  check(cudaEventCreateWithFlags(&own, cudaEventDisableTiming), "event");
  check(cuCtxPopCurrent(nullptr), "cuCtxPopCurrent");
  tried("the share's context", own);
}

/// The multiprocessors that a process's kernels run on, beside whatever other processes do.
void alone(const char* which, const Share& share, double seconds) {
  Seen seen;
  int rounds = 0;
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
       std::chrono::steady_clock::now() < end; ++rounds) {
    stay<<<2048, 128, 0, share.stream>>>(seen.get(), kShort);
    check(cudaStreamSynchronize(share.stream), "wait");
  }
  std::printf("%s: %d rounds on %d multiprocessors:", which, rounds, seen.sms());
  for (const int sm : seen.list()) std::printf(" %d", sm);
  std::printf("\n");
}

int measure(int argc, char** argv) {
  const unsigned wanted = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 32;
  check(cudaSetDevice(0), "cudaSetDevice");
  check(cudaFree(nullptr), "context");
  CUdevice device{};
  check(cuDeviceGet(&device, 0), "cuDeviceGet");
  CUdevResource all{}, small_sms{}, rest{};
  check(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM), "cuDeviceGetDevResource");
  unsigned groups = 1;
  check(cuDevSmResourceSplitByCount(&small_sms, &groups, &all, &rest, 0, wanted),
        "cuDevSmResourceSplitByCount");
  std::printf("%u multiprocessors: shares of %u and %u\n", all.sm.smCount, small_sms.sm.smCount,
              rest.sm.smCount);
  const Share small = make_share(device, small_sms), large = make_share(device, rest);
  if (argc > 3) {
    alone(argv[2], argv[2][0] == 's' ? small : large, std::atof(argv[3]));
    return 0;
  }
  try_events(small);
  cudaStream_t plain{}, other{};
  check(cudaStreamCreateWithFlags(&plain, cudaStreamNonBlocking), "stream");
  check(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "stream");

  Seen a, b;
  stay<<<2048, 128, 0, small.stream>>>(a.get(), kShort);
  stay<<<2048, 128, 0, large.stream>>>(b.get(), kShort);
  check(cudaDeviceSynchronize(), "launched");
  std::printf("launched from the shares' streams: kernels ran on %d and %d multiprocessors\n", a.sms(),
              b.sms());

  a.clear(), b.clear();
  const cudaGraphExec_t graph = captured_fork(plain, small.stream, large.stream, a.get(), b.get());
  check(cudaGraphLaunch(graph, plain), "launch the graph");
  check(cudaStreamSynchronize(plain), "run the graph");
  std::printf("captured from a plain stream that forks to both: %d and %d multiprocessors\n", a.sms(),
              b.sms());

  latency("a small kernel alone", plain, nullptr);
  latency("beside long kernels of a stream alike", plain, other);
  latency("beside long kernels, each in its share", small.stream, large.stream);
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "priorities");
  cudaStream_t urgent{};
  check(cudaStreamCreateWithPriority(&urgent, cudaStreamNonBlocking, greatest), "stream");
  latency("beside long kernels, with the highest priority", urgent, other);
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return measure(argc, argv); }
