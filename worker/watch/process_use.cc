#include "worker/watch/process_use.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "base/memory_limit.h"

namespace braid::worker {
namespace {

/// The fields of /proc/self/stat behind the name, from the third on.
std::vector<double> stat_fields() {
  std::ifstream in("/proc/self/stat");
  std::string text;
  std::getline(in, text);
  std::vector<double> fields;
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos) return fields;
  std::istringstream rest(text.substr(name_end + 1));
  std::string state;
  rest >> state;
  for (double value; rest >> value;) fields.push_back(value);
  return fields;
}

/// By the number that proc(5) gives it.
double field(const std::vector<double>& fields, std::size_t number) {
  return number >= 4 && number - 4 < fields.size() ? fields[number - 4] : 0;
}

struct Use {
  double cpu_seconds = 0, start_seconds = 0, virtual_bytes = 0, resident_bytes = 0, threads = 0;
};

Use read_use() {
  static const double ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  static const double page = static_cast<double>(::sysconf(_SC_PAGESIZE));
  const std::vector<double> fields = stat_fields();
  Use use;
  use.threads = field(fields, 20);
  use.start_seconds = field(fields, 22) / ticks;  // since the machine's start
  use.virtual_bytes = field(fields, 23);
  use.resident_bytes = field(fields, 24) * page;
  rusage own{};
  ::getrusage(RUSAGE_SELF, &own);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  use.cpu_seconds = seconds(own.ru_utime) + seconds(own.ru_stime);
  return use;
}

double unix_start(const Use& use) {
  std::ifstream in("/proc/stat");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("btime ")) return std::stod(line.substr(6)) + use.start_seconds;
  return 0;
}

double open_files() {
  DIR* folder = ::opendir("/proc/self/fd");
  if (!folder) return 0;
  double count = -3;  // ".", "..", and the folder itself
  while (::readdir(folder)) ++count;
  ::closedir(folder);
  return count;
}

}  // namespace

watch::ProcessUse process_use() {
  const Use now = read_use();
  watch::ProcessUse use;
  use.pid = ::getpid();
  use.cpu_seconds = now.cpu_seconds;
  use.cores = usable_cores();
  use.resident_bytes = static_cast<std::uint64_t>(now.resident_bytes);
  use.memory_limit_bytes = usable_memory();
  for (const auto kind : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit limit{};
    if (::getrlimit(kind, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur > 0 &&
        limit.rlim_cur < use.memory_limit_bytes)
      use.memory_limit_bytes = limit.rlim_cur;
  }
  use.threads = static_cast<int>(now.threads);
  return use;
}

void publish_process(MetricsRegistry& registry) {
  Counter& cpu = registry.counter("process_cpu_seconds_total", "Processor time of the process.");
  Gauge& resident = registry.gauge("process_resident_memory_bytes", "Resident memory.");
  Gauge& virtual_bytes = registry.gauge("process_virtual_memory_bytes", "Virtual memory.");
  Gauge& open = registry.gauge("process_open_fds", "Open file descriptors.");
  Gauge& most = registry.gauge("process_max_fds", "Most open file descriptors.");
  Gauge& start = registry.gauge("process_start_time_seconds", "When the process began, Unix time.");
  registry.on_collect([&cpu, &resident, &virtual_bytes, &open, &most, &start] {
    const Use now = read_use();
    if (const double behind = now.cpu_seconds - cpu.value(); behind > 0) cpu.add(behind);
    resident.set(now.resident_bytes);
    virtual_bytes.set(now.virtual_bytes);
    open.set(open_files());
    rlimit files{};
    if (::getrlimit(RLIMIT_NOFILE, &files) == 0) most.set(static_cast<double>(files.rlim_cur));
    start.set(unix_start(now));
  });
}

}  // namespace braid::worker
