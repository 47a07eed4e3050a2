#include "comm/nccl/nccl_meeting.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <span>

#include "base/error.h"
#include "comm/nccl/nccl_handle.h"
#include "comm/reduce.h"

namespace braid::comm {
namespace {

std::string own_name(const NcclOptions& options) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return fmt::format("rank {} ({}, cuda:{})", options.rank, host.data(), options.device);
}

}  // namespace

std::vector<std::string> meet(const NcclOptions& options, Rendezvous& rendezvous, const WaitContext& wait) {
  const auto key = [&](int rank) { return fmt::format("{}/{}/name", options.name, rank); };
  rendezvous.set_text(key(options.rank), own_name(options), wait);
  std::vector<std::string> names(static_cast<std::size_t>(options.size));
  std::vector<int> missing;
  for (int rank = 0; rank < options.size; ++rank) {
    try {
      // After the deadline those who did come are still told from those who did not.
      const WaitContext look =
          missing.empty() ? wait : WaitContext::with_timeout(std::chrono::milliseconds(100), wait.stop);
      names[static_cast<std::size_t>(rank)] = rendezvous.get_text(key(rank), look);
    } catch (const DeadlineExceeded&) {
      missing.push_back(rank);
    }
  }
  if (!missing.empty())
    throw DeadlineExceeded(fmt::format("[nccl] rank {}: timed out waiting for {} at the rendezvous ({})",
                                       options.rank, rank_list(missing), rendezvous.address()));
  return names;
}

ncclUniqueId share_id(const NcclOptions& options, Rendezvous& rendezvous, const WaitContext& wait) {
  const std::string key = options.name + "/id";
  ncclUniqueId id{};
  if (options.rank == 0) {
    check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId", options.rank);
    rendezvous.set(key, std::as_bytes(std::span(&id, 1)), wait);
    return id;
  }
  const std::vector<std::byte> bytes = rendezvous.get(key, wait);
  if (bytes.size() != sizeof(id)) throw DataLoss("[nccl] rank 0 has another version of NCCL");
  std::memcpy(&id, bytes.data(), sizeof(id));
  return id;
}

}  // namespace braid::comm
