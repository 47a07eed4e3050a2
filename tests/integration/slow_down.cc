// A library to be preloaded, which plants a cause: the variable SLOW_DISK makes every fsync and fdatasync
// take so many microseconds longer, SLOW_READS every positioned read of a block, SLOW_KERNELS every primitive
// of oneDNN. SLOW_TASK ("worker\", \"index\":
// 2") is what TF_CONFIG must contain for that; unset: any. MORE_RESIDENT makes the process so many MiB larger
// without taking memory: 4 MiB of a file in memory that are mapped again and again. CLOCK_JUMP is what the
// time of day is wrong by, in seconds; with CLOCK_JUMP_EVERY only in every other interval of so many
// milliseconds.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace {

void take_longer(const char* variable) {
  const char* time = std::getenv(variable);
  if (!time) return;
  const char* task = std::getenv("SLOW_TASK");
  const char* config = std::getenv("TF_CONFIG");
  if (!task || (config && std::strstr(config, task))) ::usleep(static_cast<useconds_t>(std::atoi(time)));
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

long number_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text ? std::atol(text) : 0;
}

time_t wrong_by() {
  static const long jump = number_of("CLOCK_JUMP"), every = number_of("CLOCK_JUMP_EVERY");
  if (jump == 0 || every == 0) return jump;
  timespec now{};
  ::syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
  return (now.tv_sec * 1000 + now.tv_nsec / 1000000) / every % 2 * jump;
}

__attribute__((constructor)) void take_more_room() {
  constexpr size_t kBytes = size_t{4} << 20;
  const long wanted = number_of("MORE_RESIDENT") << 20;
  if (wanted <= 0) return;
  const int file = ::memfd_create("more_resident", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, kBytes) != 0) std::abort();
  for (size_t mapped = 0; mapped < static_cast<size_t>(wanted); mapped += kBytes) {
    const void* const room = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED | MAP_POPULATE, file, 0);
    if (room == MAP_FAILED) std::abort();
  }
  ::close(file);
}

}  // namespace

extern "C" {
int clock_gettime(clockid_t clock, timespec* time) {
  const auto code = static_cast<int>(::syscall(SYS_clock_gettime, clock, time));
  if (code == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) time->tv_sec += wrong_by();
  return code;
}
int gettimeofday(timeval* time, void*) {
  timespec now{};
  const int code = clock_gettime(CLOCK_REALTIME, &now);
  *time = {now.tv_sec, now.tv_nsec / 1000};
  return code;
}
time_t time(time_t* out) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
int fsync(int descriptor) {
  take_longer("SLOW_DISK");
  return next<int (*)(int)>("fsync")(descriptor);
}
int fdatasync(int descriptor) {
  take_longer("SLOW_DISK");
  return next<int (*)(int)>("fdatasync")(descriptor);
}
ssize_t pread64(int descriptor, void* bytes, size_t count, off_t offset) {
  if (count >= 64) take_longer("SLOW_READS");
  return next<ssize_t (*)(int, void*, size_t, off_t)>("pread64")(descriptor, bytes, count, offset);
}
ssize_t pread(int descriptor, void* bytes, size_t count, off_t offset) {
  return pread64(descriptor, bytes, count, offset);
}
int dnnl_primitive_execute(const void* primitive, void* stream, int count, const void* arguments) {
  take_longer("SLOW_KERNELS");
  using Execute = int (*)(const void*, void*, int, const void*);
  return next<Execute>("dnnl_primitive_execute")(primitive, stream, count, arguments);
}
}
