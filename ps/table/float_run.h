// A cache-line aligned run of floats that readers may hold while its owner goes on: the owner writes in place
// when nobody reads, else into a copy. So a pull sends table memory without copying it first, and never sees
// half an update.
//
// Thread rule: `read` and `writable` are called by the owning thread only; a ReadHold may be dropped on any
// thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <utility>

namespace braid::ps {

/// Uninitialised floats, aligned to 64 bytes.
class AlignedFloats {
 public:
  AlignedFloats() = default;
  explicit AlignedFloats(std::size_t count) : count_(count) {
    const std::size_t bytes = (count * sizeof(float) + 63) / 64 * 64;
    data_.reset(static_cast<float*>(std::aligned_alloc(64, bytes == 0 ? 64 : bytes)));
    if (!data_) throw std::bad_alloc();
  }
  float* data() const { return data_.get(); }
  std::size_t size() const { return count_; }
  std::span<float> span() const { return {data_.get(), count_}; }

 private:
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  std::size_t count_ = 0;
  std::unique_ptr<float, Free> data_;
};

class FloatRun {
  struct Body {
    explicit Body(std::size_t count) : floats(count) {}
    AlignedFloats floats;
    std::atomic<int> readers{0};
  };

 public:
  /// Keeps one state of a run alive and unchanged.
  class ReadHold {
   public:
    explicit ReadHold(std::shared_ptr<Body> body) : body_(std::move(body)) {
      body_->readers.fetch_add(1, std::memory_order_relaxed);
    }
    ReadHold(ReadHold&&) noexcept = default;
    ReadHold& operator=(ReadHold&&) = delete;
    ~ReadHold() {
      if (body_) body_->readers.fetch_sub(1, std::memory_order_release);
    }
    std::span<const float> values() const { return body_->floats.span(); }

   private:
    std::shared_ptr<Body> body_;
  };

  explicit FloatRun(std::size_t count) : body_(std::make_shared<Body>(count)) {}

  ReadHold read() const { return ReadHold(body_); }
  std::span<const float> values() const { return body_->floats.span(); }

  /// The run for writing: the same values, in memory that no reader holds.
  std::span<float> writable() {
    if (body_->readers.load(std::memory_order_acquire) != 0) {
      auto fresh = std::make_shared<Body>(body_->floats.size());
      std::memcpy(fresh->floats.data(), body_->floats.data(), body_->floats.size() * sizeof(float));
      body_ = std::move(fresh);
    }
    return body_->floats.span();
  }

 private:
  std::shared_ptr<Body> body_;
};

}  // namespace braid::ps
