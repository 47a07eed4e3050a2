#include "cli/doctor_checks.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <thread>

#include "base/cpu.h"
#include "base/memory_limit.h"

namespace braid::cli {
namespace {

using State = Finding::State;
using Path = std::filesystem::path;
using Roles = std::vector<std::string>;

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr double kSmallDisk = 2 * kGiB, kSmallMemory = 2 * kGiB, kSmallSharedMemory = 1 * kGiB;
constexpr rlim_t kFewFiles = 4096;

std::optional<std::string> first_line(const Path& file) {
  std::ifstream in(file);
  std::string line;
  if (!std::getline(in, line)) return std::nullopt;
  return line;
}

std::string bytes_text(double bytes) {
  if (bytes >= kGiB) return fmt::format("{:.1f} GiB", bytes / kGiB);
  return fmt::format("{:.0f} MiB", bytes / 1024 / 1024);
}

/// The first of `names` on PATH or in `more`.
std::optional<Path> program(std::initializer_list<const char*> names,
                            std::initializer_list<const char*> more = {}) {
  std::vector<Path> folders;
  const char* path = std::getenv("PATH");
  std::stringstream in(path ? path : "");
  for (std::string folder; std::getline(in, folder, ':');)
    if (!folder.empty()) folders.emplace_back(folder);
  folders.insert(folders.end(), more.begin(), more.end());
  for (const char* name : names)
    for (const Path& folder : folders)
      if (::access((folder / name).c_str(), X_OK) == 0 && std::filesystem::is_regular_file(folder / name))
        return folder / name;
  return std::nullopt;
}

/// Opened, so that what it needs itself is found out as well. Closed again.
class Library {
 public:
  explicit Library(std::initializer_list<const char*> names) {
    for (const char* name : names)
      if (!handle_) handle_ = ::dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    if (!handle_)
      if (const char* why = ::dlerror()) why_ = why;
  }
  ~Library() {
    if (handle_) ::dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  bool found() const { return handle_ != nullptr; }
  const std::string& why() const { return why_; }
  void* symbol(const char* name) const { return handle_ ? ::dlsym(handle_, name) : nullptr; }

 private:
  void* handle_ = nullptr;
  std::string why_;
};

Finding build() {
  std::string parts = BRAID_BUILT_WITH_CUDA ? "CUDA" : "no CUDA";
  parts += BRAID_BUILT_WITH_NCCL ? ", NCCL" : ", no NCCL";
  parts += BRAID_BUILT_WITH_MPI ? ", MPI" : ", no MPI";
  return {"braid", State::Good, fmt::format("{} ({})", BRAID_VERSION, parts)};
}

Finding built_with(const char* what, bool there, const char* option, const Roles& needed_for) {
  if (there) return {fmt::format("build: {}", what), State::Good, "in this build", "", needed_for};
  return {fmt::format("build: {}", what), State::Missing, "not in this build",
          fmt::format("build from source with {}", option), needed_for};
}

Finding processor() {
  std::string vectors = "no AVX2";
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) vectors = "AVX2";
  if (__builtin_cpu_supports("avx512f")) vectors = "AVX-512";
#endif
  return {"cores", State::Good,
          fmt::format("{} usable of {}, {}", usable_cores(), std::thread::hardware_concurrency(), vectors)};
}

/// A number of a line "MemTotal:  123 kB", in bytes.
double memory_line(const Path& root, const std::string& key) {
  std::ifstream in(root / "proc/meminfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key + ":")) return std::strtod(line.c_str() + key.size() + 1, nullptr) * 1024;
  return 0;
}

Finding memory(const Path& root) {
  const double available = memory_line(root, "MemAvailable");
  return {"memory", available < kSmallMemory ? State::Poor : State::Good,
          fmt::format("{} available of {}", bytes_text(available), bytes_text(memory_line(root, "MemTotal"))),
          "tables, batches and a checkpoint's copy must fit"};
}

/// Of a container or a unit of systemd.
Finding cgroup(const Path& root) {
  std::ifstream in(root / "proc/self/cgroup");
  const std::string groups{std::istreambuf_iterator<char>(in), {}};
  std::vector<std::string> limits;
  State state = State::Good;
  if (const double cpus = cpu_quota(groups, root / "sys/fs/cgroup"); std::isfinite(cpus)) {
    limits.push_back(fmt::format("{:.3g} CPUs", cpus));
    if (cpus < 1) state = State::Poor;
  }
  // Version 1 says a number near 2^63 where there is none.
  if (const auto bytes = static_cast<double>(memory_limit(groups, root / "sys/fs/cgroup")); bytes < 1e18) {
    limits.push_back(bytes_text(bytes) + " of memory");
    if (bytes < kSmallMemory) state = State::Poor;
  }
  return {"cgroup", state,
          limits.empty() ? "no limit" : fmt::format("limited to {}", fmt::join(limits, ", ")),
          "raise resources.limits of the container"};
}

Finding limit(const char* name, int resource, rlim_t wanted, const char* option, const char* why) {
  rlimit limit{};
  ::getrlimit(static_cast<__rlimit_resource_t>(resource), &limit);
  const auto text = [](rlim_t value) {
    return value == RLIM_INFINITY ? std::string("unlimited") : std::to_string(value);
  };
  const bool low = limit.rlim_cur < wanted;
  std::string advice;
  if (low && limit.rlim_max >= wanted)
    advice = fmt::format("ulimit {} {}", option, text(wanted));
  else if (low)
    advice =
        fmt::format("raise it in /etc/security/limits.conf or the container's ulimits to {}", text(wanted));
  return {name, low ? State::Poor : State::Good, text(limit.rlim_cur) + (low ? std::string("; ") + why : ""),
          advice};
}

struct Room {
  double free = 0, total = 0;
};
std::optional<Room> room(const Path& directory) {
  struct statvfs stat {};
  if (::statvfs(directory.c_str(), &stat) != 0) return std::nullopt;
  const auto block = static_cast<double>(stat.f_frsize);
  return Room{block * static_cast<double>(stat.f_bavail), block * static_cast<double>(stat.f_blocks)};
}

Finding shared_memory(const Path& root) {
  const auto there = room(root / "dev/shm");
  if (!there)
    return {"/dev/shm", State::Missing, "not there", "mount -t tmpfs tmpfs /dev/shm", {"nccl", "mpi"}};
  const bool small = there->total < kSmallSharedMemory;
  return {"/dev/shm", small ? State::Poor : State::Good,
          fmt::format("{} free of {}", bytes_text(there->free), bytes_text(there->total)),
          "docker run --shm-size=8g, or an emptyDir of medium Memory on Kubernetes: NCCL and MPI use it"};
}

Finding disk(const Path& directory) {
  Path there = std::filesystem::absolute(directory).lexically_normal();
  if (!there.has_filename()) there = there.parent_path();
  std::error_code ignored;
  while (!std::filesystem::exists(there, ignored) && there.has_relative_path()) there = there.parent_path();
  const Roles needed{"train"};
  const auto space = room(there);
  if (!space)
    return {"disk", State::Missing, fmt::format("{}: {}", there.string(), std::strerror(errno)), "", needed};
  if (::access(there.c_str(), W_OK) != 0)
    return {"disk", State::Missing, there.string() + " cannot be written to",
            "choose another place with checkpoint.directory", needed};
  return {
      "disk", space->free < kSmallDisk ? State::Poor : State::Good,
      fmt::format("{} free of {} in {}", bytes_text(space->free), bytes_text(space->total), there.string()),
      "a checkpoint needs the model's and the optimizer's bytes, `checkpoint.keep` times and once more",
      needed};
}

/// A port can be had, and this is how many there are.
Finding ports(const Path& root) {
  const Roles needed{"train"};
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool bound = socket >= 0 &&
                     ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
                     ::listen(socket, 1) == 0;
  const std::string why = bound ? "" : std::strerror(errno);
  if (socket >= 0) ::close(socket);
  if (!bound) return {"ports", State::Missing, "cannot listen on 127.0.0.1: " + why, "", needed};
  std::string range = first_line(root / "proc/sys/net/ipv4/ip_local_port_range").value_or("unknown");
  std::replace(range.begin(), range.end(), '\t', '-');
  return {"ports", State::Good, "can listen on 127.0.0.1; ports chosen by the system: " + range, "", needed};
}

/// What other hosts would reach.
Finding network() {
  std::vector<std::string> addresses;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) == 0) {
    for (const ifaddrs* each = all; each; each = each->ifa_next) {
      if (!each->ifa_addr || each->ifa_addr->sa_family != AF_INET || (each->ifa_flags & IFF_LOOPBACK) != 0)
        continue;
      char text[INET_ADDRSTRLEN] = {};
      ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr, text,
                  sizeof(text));
      addresses.push_back(fmt::format("{} ({})", text, each->ifa_name));
    }
    ::freeifaddrs(all);
  }
  if (addresses.empty())
    return {"network", State::Poor, "no address but loopback",
            "jobs over several hosts need one that they reach"};
  return {"network", State::Good, fmt::format("{}", fmt::join(addresses, ", "))};
}

Finding compiler() {
  const auto there = program({"g++", "c++", "clang++"});
  if (!there)
    return {"compiler", State::Missing, "no g++ or clang++ on PATH; only builds need it",
            "apt install build-essential"};
  const auto cmake = program({"cmake"}), ninja = program({"ninja"});
  if (!cmake || !ninja)
    return {"compiler", State::Missing,
            there->string() + (cmake ? "" : ", no cmake") + (ninja ? "" : ", no ninja") +
                "; only builds need them",
            "apt install cmake ninja-build"};
  return {"compiler", State::Good,
          fmt::format("{}, {}, {}", there->string(), cmake->string(), ninja->string())};
}

Finding gpu(const Path& root) {
  const Roles needed{"cuda", "nccl"};
  std::vector<std::string> models;
  std::error_code none;
  for (const auto& each : std::filesystem::directory_iterator(root / "proc/driver/nvidia/gpus", none)) {
    std::ifstream in(each.path() / "information");
    for (std::string line; std::getline(in, line);)
      if (line.starts_with("Model:"))
        models.push_back(line.substr(std::min(line.find_first_not_of(" \t", 6), line.size())));
  }
  if (!models.empty()) return {"GPU", State::Good, fmt::format("{}", fmt::join(models, ", ")), "", needed};
  int nodes = 0;
  while (std::filesystem::exists(root / fmt::format("dev/nvidia{}", nodes), none)) ++nodes;
  if (nodes > 0) return {"GPU", State::Good, fmt::format("{} (/dev/nvidia0 ...)", nodes), "", needed};
  return {"GPU", State::Missing, "no NVIDIA GPU is visible",
          "in a container: docker run --gpus all, or the resource nvidia.com/gpu on Kubernetes", needed};
}

Finding driver(const Path& root) {
  const Roles needed{"cuda", "nccl"};
  const Library cuda({"libcuda.so.1"});
  std::string version;
  if (const auto line = first_line(root / "proc/driver/nvidia/version"))
    if (const auto at = line->find("  "); at != std::string::npos)
      version =
          line->substr(line->find_first_not_of(' ', at),
                       line->find(' ', line->find_first_not_of(' ', at)) - line->find_first_not_of(' ', at));
  if (!cuda.found())
    return {"driver", State::Missing, version.empty() ? "no libcuda.so.1" : version + ", but no libcuda.so.1",
            "install NVIDIA's driver, in a container the NVIDIA Container Toolkit", needed};
  using GetVersion = int (*)(int*);
  int api = 0;
  if (const auto get = reinterpret_cast<GetVersion>(cuda.symbol("cuDriverGetVersion"))) get(&api);
  return {"driver", State::Good,
          fmt::format("{}for CUDA {}.{}", version.empty() ? "" : version + ", ", api / 1000, api % 1000 / 10),
          "", needed};
}

Finding toolkit() {
  if (const auto nvcc = program({"nvcc"}, {"/usr/local/cuda/bin"}))
    return {"CUDA Toolkit", State::Good, nvcc->string()};
  return {"CUDA Toolkit", State::Missing, "no nvcc; only builds need it",
          "install CUDA 12 or later, or set CUDA_HOME"};
}

Finding nccl() {
  const Roles needed{"nccl"};
  const Library library({"libnccl.so.2"});
  if (!library.found())
    return {"NCCL", State::Missing, "no libnccl.so.2", "apt install libnccl2 (NVIDIA's repository)", needed};
  using GetVersion = int (*)(int*);
  int code = 0;
  if (const auto get = reinterpret_cast<GetVersion>(library.symbol("ncclGetVersion"))) get(&code);
  return {"NCCL", State::Good, fmt::format("{}.{}.{}", code / 10000, code % 10000 / 100, code % 100), "",
          needed};
}

Finding mpi() {
  const Roles needed{"mpi"};
  const auto mpirun = program({"mpirun"});
  if (!mpirun) return {"MPI", State::Missing, "no mpirun on PATH", "apt install openmpi-bin", needed};
  std::string found = mpirun->string();
  if (::geteuid() == 0) found += "; as root it needs --allow-run-as-root";
  return {"MPI", State::Good, found, "", needed};
}

}  // namespace

std::vector<Finding> examine_machine(const Examination& examination) {
  const Path& root = examination.root;
  std::vector<Finding> findings{build(), processor(), memory(root), cgroup(root),
                                disk(examination.directory)};
  findings.push_back(limit("open files", RLIMIT_NOFILE, kFewFiles, "-n", "each connection takes one"));
  findings.push_back(
      limit("locked memory", RLIMIT_MEMLOCK, RLIM_INFINITY, "-l", "matters with InfiniBand only"));
  findings.push_back(shared_memory(root));
  findings.push_back(ports(root));
  findings.push_back(network());
  findings.push_back(built_with("CUDA", BRAID_BUILT_WITH_CUDA, "-DBRAID_CUDA=ON", {"cuda", "nccl"}));
  findings.push_back(gpu(root));
  findings.push_back(driver(root));
  findings.push_back(
      built_with("NCCL", BRAID_BUILT_WITH_NCCL, "-DBRAID_CUDA=ON and NCCL's headers", {"nccl"}));
  findings.push_back(nccl());
  findings.push_back(built_with("MPI", BRAID_BUILT_WITH_MPI, "libopenmpi-dev installed", {"mpi"}));
  findings.push_back(mpi());
  findings.push_back(compiler());
  findings.push_back(toolkit());
  return findings;
}

}  // namespace braid::cli
