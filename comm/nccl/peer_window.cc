#include "comm/nccl/peer_window.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>

#include "base/cuda/check.h"
#include "base/cuda/handles.h"
#include "base/error.h"

namespace braid::comm {
namespace {

/// Which machine this is: the number that its kernel drew when it started.
std::string host_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

struct Offer {
  std::array<char, 64> host{};
  cudaIpcMemHandle_t handle{};
  int given = 0;  // 0: this rank has nothing to map
  pid_t process = 0;
  int device = 0;
  std::byte* memory = nullptr;  // for ranks of the same process
};

std::string rank_key(const std::string& key, const char* what, int rank) {
  return fmt::format("{}/{}/{}", key, what, rank);
}

/// Memory of another device, of this process, or of the same one.
std::byte* reach(int device, std::byte* memory, int own) {
  if (device == own) return memory;
  const cudaError_t enabled = cudaDeviceEnablePeerAccess(device, 0);
  if (enabled == cudaErrorPeerAccessAlreadyEnabled) cudaGetLastError();
  return enabled == cudaSuccess || enabled == cudaErrorPeerAccessAlreadyEnabled ? memory : nullptr;
}

/// What the last CUDA call said, which is no error of this process then.
std::string last_error() { return cudaGetErrorString(cudaGetLastError()); }

}  // namespace

PeerWindow::PeerWindow(int rank, std::span<const std::int64_t> bytes)
    : rank_(rank), bases_(bytes.size()), mapped_(bytes.size()) {
  for (const std::int64_t size : bytes) halves_.push_back((size + 255) / 256 * 256);
  const std::size_t all =
      kHeaderBytes + 2 * static_cast<std::size_t>(halves_[static_cast<std::size_t>(rank)]);
  void* memory = nullptr;
  BRAID_CUDA_CHECK(cudaMalloc(&memory, all));
  bases_[static_cast<std::size_t>(rank)] = static_cast<std::byte*>(memory);
  const cuda::Stream stream = cuda::make_stream();  // waits for nothing else
  BRAID_CUDA_CHECK(cudaMemsetAsync(memory, 0, kHeaderBytes, stream.get()));
  BRAID_CUDA_CHECK(cudaStreamSynchronize(stream.get()));
}

PeerWindow::~PeerWindow() {
  for (int r = 0; r < ranks(); ++r) {
    if (r == rank_) cuda::log_failure(cudaFree(at(r)), "cudaFree");
    if (mapped_[static_cast<std::size_t>(r)])
      cuda::log_failure(cudaIpcCloseMemHandle(at(r)), "cudaIpcCloseMemHandle");
  }
}

std::byte* PeerWindow::map(const cudaIpcMemHandle_t& handle, std::size_t rank) {
  void* memory = nullptr;
  if (cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess) return nullptr;
  mapped_[rank] = true;
  return static_cast<std::byte*>(memory);
}

void PeerWindow::map_peers(Rendezvous& rendezvous, const std::string& key, const WaitContext& wait,
                           std::string& why) {
  Offer mine;
  const std::string host = host_id();
  std::memcpy(mine.host.data(), host.data(), std::min(host.size(), mine.host.size() - 1));
  mine.process = getpid();
  mine.memory = at(rank_);
  BRAID_CUDA_CHECK(cudaGetDevice(&mine.device));
  mine.given = cudaIpcGetMemHandle(&mine.handle, at(rank_)) == cudaSuccess ? 1 : 0;
  if (mine.given == 0) why = "its memory cannot be shared: " + last_error();
  rendezvous.set(rank_key(key, "window", rank_), std::as_bytes(std::span(&mine, 1)), wait);
  for (int r = 0; r < ranks(); ++r) {
    if (r == rank_) continue;
    const std::vector<std::byte> bytes = rendezvous.get(rank_key(key, "window", r), wait);
    Offer theirs;
    if (bytes.size() != sizeof(theirs)) throw DataLoss(fmt::format("[nccl] rank {} has another version", r));
    std::memcpy(&theirs, bytes.data(), sizeof(theirs));
    if (!why.empty()) continue;  // all offers are taken all the same
    if (theirs.given == 0 || theirs.host != mine.host) {
      why = fmt::format("rank {} is on another host, or its memory cannot be shared", r);
      continue;
    }
    bases_[static_cast<std::size_t>(r)] = theirs.process == mine.process
                                              ? reach(theirs.device, theirs.memory, mine.device)
                                              : map(theirs.handle, static_cast<std::size_t>(r));
    if (!at(r)) why = fmt::format("the memory of rank {} cannot be mapped: {}", r, last_error());
  }
}

std::unique_ptr<PeerWindow> PeerWindow::open(Rendezvous& rendezvous, const std::string& key, int rank,
                                             std::span<const std::int64_t> bytes, const WaitContext& wait,
                                             std::string& why) {
  if (std::ssize(bytes) > kMostRanks) {
    why = fmt::format("there are more than {} ranks", kMostRanks);
    return nullptr;
  }
  std::unique_ptr<PeerWindow> window(new PeerWindow(rank, bytes));
  window->map_peers(rendezvous, key, wait, why);
  rendezvous.set_text(rank_key(key, "mapped", rank), why, wait);
  for (int r = 0; r < window->ranks(); ++r) {
    const std::string theirs = rendezvous.get_text(rank_key(key, "mapped", r), wait);
    if (why.empty() && !theirs.empty()) why = fmt::format("rank {}: {}", r, theirs);
  }
  if (!why.empty()) window.reset();
  return window;
}

}  // namespace braid::comm
