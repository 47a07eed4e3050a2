// A library to be preloaded, which plants a cause: the variable SLOW_DISK makes every fsync and fdatasync
// take so many microseconds longer, SLOW_READS every positioned read of a block, SLOW_KERNELS every primitive
// of oneDNN. SLOW_TASK ("worker\", \"index\":
// 2") is what TF_CONFIG must contain for that; unset: any.
#include <dlfcn.h>
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

}  // namespace

extern "C" {
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
