// Direct reads by io_uring: O_DIRECT into page-aligned buffers of our own, up to `depth` of them under way,
// in the order of the bytes.
#include <fcntl.h>
#include <fmt/format.h>
#include <liburing.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "engine/input/files/data_file.h"
#include "engine/input/files/file_reads.h"

namespace braid {
namespace {

using Clock = std::chrono::steady_clock;

/// What all disks and file systems take as a place, a length and an address.
constexpr std::uint64_t kAlignment = 4096;
/// How long a reader that goes away waits for reads that nobody needs.
constexpr std::chrono::seconds kLeaveTime{5};

std::uint64_t aligned_down(std::uint64_t at) { return at / kAlignment * kAlignment; }
std::uint64_t aligned_up(std::uint64_t at) { return aligned_down(at + kAlignment - 1); }

void say_once(std::once_flag& said, const std::string& text) {
  std::call_once(said, [&] { log_warning("input: {}, so files are read through the page cache", text); });
}

/// A queue of the kernel's, and the buffers that it fills. Where the kernel has not given back all buffers in
/// time, they are left to it.
class Ring {
 public:
  Ring(int depth, std::size_t chunk) : chunk_(chunk) {
    const int failed = ::io_uring_queue_init(static_cast<unsigned>(depth), &ring_, 0);
    if (failed != 0) {
      problem_ = -failed;
      return;
    }
    bytes_ = static_cast<std::size_t>(depth) * chunk;
    void* const memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      ::io_uring_queue_exit(&ring_);
      throw OutOfMemory(fmt::format("input: no memory for {} bytes of reads", bytes_));
    }
    memory_ = static_cast<std::byte*>(memory);
  }
  ~Ring() {
    if (problem_ != 0) return;
    if (left_behind_) return;
    ::io_uring_queue_exit(&ring_);
    ::munmap(memory_, bytes_);
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  int problem() const { return problem_; }  // an errno; 0: none
  io_uring* get() { return &ring_; }
  std::byte* buffer(std::size_t slot) { return memory_ + slot * chunk_; }
  void leave_behind() { left_behind_ = true; }

 private:
  const std::size_t chunk_;
  io_uring ring_{};
  int problem_ = 0;
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
  bool left_behind_ = false;
};

struct OpenFile {
  explicit OpenFile(const std::filesystem::path& file)
      : path(file), descriptor(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT)) {}
  ~OpenFile() {
    if (descriptor >= 0) ::close(descriptor);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  const std::filesystem::path path;
  const int descriptor;
};

/// A buffer's worth of a file. Bytes [skip, want) of the buffer are asked for.
struct Chunk {
  const OpenFile* file = nullptr;
  std::uint64_t offset = 0;  // of the file, aligned
  std::uint64_t skip = 0, want = 0, got = 0;
  bool done = false;
};

class UringReader : public DirectReader {
 public:
  UringReader(const FileReadOptions& options, ReadMeter& meter, std::unique_ptr<Ring> ring)
      : options_(options),
        meter_(meter),
        ring_(std::move(ring)),
        chunks_(static_cast<std::size_t>(options.depth)) {}
  ~UringReader() override {
    if (!drain(kLeaveTime)) {
      log_warning("input: {} reads of '{}' do not come back; their buffers are left to them", in_flight_,
                  chunks_[0].file ? chunks_[0].file->path.string() : "");
      forget_reads();
    }
  }

  bool begin(const std::vector<FileExtent>& extents) override {
    if (!drain(options_.timeout)) renew();
    files_.clear();
    extents_.clear();
    first_ = count_ = next_extent_ = 0;
    for (const FileExtent& extent : extents)
      if (!add(extent)) return false;
    if (!extents_.empty()) position_ = extents_[0].begin;
    submit_ahead();
    return true;
  }

  void read(std::span<std::byte> out) override {
    while (!out.empty()) {
      if (count_ == 0) throw Internal("input: more bytes are read than were asked for");
      Chunk& chunk = chunks_[first_];
      await(chunk);
      const std::size_t n = std::min<std::uint64_t>(out.size(), chunk.want - chunk.skip);
      std::memcpy(out.data(), ring_->buffer(first_) + chunk.skip, n);
      chunk.skip += n;
      out = out.subspan(n);
      if (chunk.skip < chunk.want) continue;
      first_ = (first_ + 1) % chunks_.size();
      --count_;
      submit_ahead();
    }
  }

 private:
  struct Extent {
    const OpenFile* file = nullptr;
    std::uint64_t begin = 0, end = 0;
  };

  /// Neighbours become one. False: not past the page cache.
  bool add(const FileExtent& extent) {
    if (!scheme_of(extent.file.native()).empty()) return false;
    if (extent.begin == extent.end) return true;
    if (files_.empty() || files_.back()->path != extent.file) {
      auto file = std::make_unique<OpenFile>(extent.file);
      if (file->descriptor < 0) {
        if (errno == EINVAL || errno == EOPNOTSUPP) refused_by(extent.file);
        return false;  // whoever reads it through the page cache says what else is wrong
      }
      files_.push_back(std::move(file));
    }
    const OpenFile* const file = files_.back().get();
    if (!extents_.empty() && extents_.back().file == file && extents_.back().end == extent.begin)
      extents_.back().end = extent.end;
    else
      extents_.push_back({file, extent.begin, extent.end});
    return true;
  }

  static void refused_by(const std::filesystem::path& file) {
    static std::once_flag said;
    say_once(said, "the file system of '" + file.string() + "' takes no direct reads");
  }

  void submit_ahead() {
    bool any = false;
    for (; count_ < chunks_.size() && next_extent_ < extents_.size(); any = true) {
      const Extent& extent = extents_[next_extent_];
      const std::size_t slot = (first_ + count_) % chunks_.size();
      Chunk& chunk = chunks_[slot];
      chunk = {.file = extent.file, .offset = aligned_down(position_)};
      chunk.skip = position_ - chunk.offset;
      position_ = std::min<std::uint64_t>(extent.end, chunk.offset + options_.chunk_bytes);
      chunk.want = position_ - chunk.offset;
      prepare(slot);
      ++count_;
      if (position_ == extent.end && ++next_extent_ < extents_.size())
        position_ = extents_[next_extent_].begin;
    }
    if (any) submit();
  }

  /// What the chunk lacks. The kernel hears of it by submit().
  void prepare(std::size_t slot) {
    const Chunk& chunk = chunks_[slot];
    const std::uint64_t from = aligned_down(chunk.got);
    io_uring_sqe* const entry = ::io_uring_get_sqe(ring_->get());  // there is one for each chunk
    ::io_uring_prep_read(entry, chunk.file->descriptor, ring_->buffer(slot) + from,
                         static_cast<unsigned>(aligned_up(chunk.want) - from), chunk.offset + from);
    ::io_uring_sqe_set_data64(entry, slot);
    if (in_flight_++ == 0) meter_.begin();
  }

  void submit() {
    int submitted = 0;
    do submitted = ::io_uring_submit(ring_->get());
    while (submitted == -EINTR || submitted == -EAGAIN);
    if (submitted < 0)
      throw Unavailable(fmt::format("input: the kernel takes no reads: {}", std::strerror(-submitted)));
  }

  void await(const Chunk& chunk) {
    const Clock::time_point deadline = Clock::now() + options_.timeout;
    while (!chunk.done)
      if (!take_one(deadline))
        throw DeadlineExceeded(fmt::format("[files] '{}' bytes {} to {}: not read within {} s",
                                           chunk.file->path.string(), chunk.offset, chunk.offset + chunk.want,
                                           std::chrono::duration<double>(options_.timeout).count()));
  }

  /// Waits for one read that ends. False: none did.
  bool take_one(Clock::time_point deadline) {
    io_uring_cqe* done = nullptr;
    int failed = 0;
    do {
      const auto left = std::max<std::int64_t>((deadline - Clock::now()).count(), 0);
      __kernel_timespec time{left / 1'000'000'000, left % 1'000'000'000};
      failed = ::io_uring_wait_cqe_timeout(ring_->get(), &done, &time);
    } while (failed == -EINTR);
    if (failed == -ETIME) return false;
    if (failed < 0)
      throw Unavailable(fmt::format("input: cannot wait for reads: {}", std::strerror(-failed)));
    const auto slot = static_cast<std::size_t>(::io_uring_cqe_get_data64(done));
    const int result = done->res;
    ::io_uring_cqe_seen(ring_->get(), done);
    const std::uint64_t bytes = result > 0 ? static_cast<std::uint64_t>(result) : 0;
    if (--in_flight_ == 0)
      meter_.end(bytes, true);
    else
      meter_.add(bytes);
    if (!dropping_) take_result(slot, result);
    return true;
  }

  void take_result(std::size_t slot, int result) {
    Chunk& chunk = chunks_[slot];
    if (result == -EINVAL || result == -EOPNOTSUPP) return read_plainly(slot);
    if (result < 0 && result != -EINTR && result != -EAGAIN)
      throw Unavailable(fmt::format("[files] cannot read byte {} of '{}': {}", chunk.offset + chunk.got,
                                    chunk.file->path.string(), std::strerror(-result)));
    if (result >= 0) {
      const std::uint64_t got = aligned_down(chunk.got) + static_cast<std::uint64_t>(result);
      chunk.done = got >= chunk.want;
      if (chunk.done) return;
      if (got <= chunk.got)
        throw DataLoss(fmt::format("[files] '{}' ends at byte {}, {} bytes too soon",
                                   chunk.file->path.string(), chunk.offset + chunk.got,
                                   chunk.want - chunk.got));
      chunk.got = got;
    }
    prepare(slot);
    submit();
  }

  /// Some file systems refuse a direct read and not the file.
  void read_plainly(std::size_t slot) {
    Chunk& chunk = chunks_[slot];
    refused_by(chunk.file->path);
    File::open(chunk.file->path)
        .read_at(chunk.offset + chunk.skip,
                 {ring_->buffer(slot) + chunk.skip, static_cast<std::size_t>(chunk.want - chunk.skip)});
    chunk.done = true;
  }

  /// Waits for all that is under way, which nobody needs. False: it took too long.
  bool drain(std::chrono::nanoseconds time) {
    const Clock::time_point deadline = Clock::now() + time;
    dropping_ = true;
    while (in_flight_ > 0)
      if (!take_one(deadline)) break;
    dropping_ = false;
    return in_flight_ == 0;
  }
  /// Files may be closed under reads, which the kernel has its own hold of; buffers and the queue may not.
  void forget_reads() {
    ring_->leave_behind();
    meter_.end(0, true);
    in_flight_ = 0;
  }
  void renew() {
    forget_reads();
    ring_ = std::make_unique<Ring>(options_.depth, options_.chunk_bytes);
    if (ring_->problem() != 0)
      throw Unavailable(fmt::format("input: io_uring: {}", std::strerror(ring_->problem())));
  }

  const FileReadOptions options_;
  ReadMeter& meter_;
  std::unique_ptr<Ring> ring_;
  std::vector<std::unique_ptr<OpenFile>> files_;
  std::vector<Extent> extents_;
  std::size_t next_extent_ = 0;  // of which the next chunk is
  std::uint64_t position_ = 0;   // in it
  std::vector<Chunk> chunks_;    // by slot, a buffer each
  std::size_t first_ = 0;        // the slot that is read next
  std::size_t count_ = 0;        // slots in use from there on, around
  std::size_t in_flight_ = 0;
  bool dropping_ = false;
};

}  // namespace

std::unique_ptr<DirectReader> make_direct_reader(const FileReadOptions& options, ReadMeter& meter) {
  auto ring = std::make_unique<Ring>(options.depth, options.chunk_bytes);
  if (ring->problem() != 0) {
    static std::once_flag said;
    say_once(said, fmt::format("the kernel refuses io_uring ({}), as containers often do",
                               std::strerror(ring->problem())));
    return nullptr;
  }
  return std::make_unique<UringReader>(options, meter, std::move(ring));
}

}  // namespace braid
