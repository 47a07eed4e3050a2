#include "worker/strategies/tensor_service.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "comm/communicator.h"
#include "worker/process/share_text.h"

namespace braid::worker {
namespace {

constexpr const char* kWholeVariables = "tensor.shard";

/// Calls copy(offset in the whole, offset in the part, bytes) for each run of the slice.
template <class Copy>
void for_runs(const TensorSlice& slice, int place, std::size_t element_bytes, Copy copy) {
  const Shape& whole = slice.whole.shape;
  if (slice.flat) {
    const std::int64_t part = slice.local_shape().elements(), first = part * place;
    const std::int64_t count = std::clamp<std::int64_t>(whole.elements() - first, 0, part);
    const auto bytes = [&](std::int64_t elements) {
      return static_cast<std::size_t>(elements) * element_bytes;
    };
    if (count > 0) copy(bytes(first), 0, bytes(count));
    return;
  }
  std::int64_t outer = 1, inner = 1;
  for (int axis = 0; axis < slice.axis; ++axis) outer *= whole[axis];
  for (int axis = slice.axis + 1; axis < whole.rank(); ++axis) inner *= whole[axis];
  const std::size_t run = static_cast<std::size_t>(whole[slice.axis] / slice.parts * inner) * element_bytes;
  for (std::size_t o = 0; o < static_cast<std::size_t>(outer); ++o)
    copy((o * static_cast<std::size_t>(slice.parts) + static_cast<std::size_t>(place)) * run, o * run, run);
}

}  // namespace

Tensor slice_of(const Tensor& whole, const TensorSlice& slice, int place) {
  Tensor part = Tensor::zeros(whole.dtype(), slice.local_shape());
  for_runs(slice, place, dtype_size(whole.dtype()), [&](std::size_t from, std::size_t to, std::size_t bytes) {
    std::memcpy(part.as_bytes().data() + to, whole.as_bytes().data() + from, bytes);
  });
  return part;
}

void put_slice(const Tensor& part, const TensorSlice& slice, int place, Tensor& whole) {
  for_runs(slice, place, dtype_size(whole.dtype()), [&](std::size_t to, std::size_t from, std::size_t bytes) {
    std::memcpy(whole.as_bytes().data() + to, part.as_bytes().data() + from, bytes);
  });
}

const StoredSlice* TensorService::find_local(const std::string& name) const {
  const auto at = std::find_if(slices_.begin(), slices_.end(),
                               [&](const StoredSlice& slice) { return slice.local == name; });
  return at == slices_.end() ? nullptr : &*at;
}

bool TensorService::is_copy(const std::string& name) const {
  return std::any_of(slices_.begin(), slices_.end(),
                     [&](const StoredSlice& slice) { return slice.model == name; });
}

/// What the leader cannot read ends all ranks with its words.
void TensorService::begin(const WholeValue& whole, const WaitContext& wait) {
  for (const StoredSlice& each : slices_) {
    Tensor value(DType::Float32, each.slice.whole.shape);
    std::int64_t given = 0;  // 1: the value follows; below 0: an error's code
    std::string refusal;
    if (communicator_->rank() == 0) {
      std::ranges::fill(value.data<float>(), each.initial);
      try {
        given = whole(each, value) ? 1 : 0;
      } catch (const Error& error) {
        given = -static_cast<std::int64_t>(error.code());
        refusal = error.message();
      }
    }
    communicator_->broadcast(&given, 1, DType::Int64, 0, StreamRef::host(), wait);
    if (given < 0) {
      share_text(refusal, *communicator_, wait);
      communicator_->barrier(wait);
      throw_error(static_cast<ErrorCode>(-given), refusal);
    }
    if (given == 0) continue;
    communicator_->broadcast(value.raw(), value.elements(), value.dtype(), 0, StreamRef::host(), wait);
    store_.write(each.local, slice_of(value, each.slice, place_));
  }
}

TensorService::Request TensorService::ask(Request request, const WaitContext& wait) {
  auto word = static_cast<std::int64_t>(request);
  communicator_->broadcast(&word, 1, DType::Int64, 0, StreamRef::host(), wait);
  return static_cast<Request>(word);
}

/// The leader's group are the first ranks.
Tensor TensorService::gather_one(const StoredSlice& each, const WaitContext& wait) {
  Tensor whole(DType::Float32, each.slice.whole.shape);
  put_slice(*store_.read(each.local), each.slice, 0, whole);
  Tensor part(DType::Float32, each.slice.local_shape());
  for (int rank = 1; rank < each.slice.parts; ++rank) {
    communicator_->recv(part.raw(), part.elements(), part.dtype(), rank, StreamRef::host(), wait);
    put_slice(part, each.slice, rank, whole);
  }
  return whole;
}

void TensorService::hand_over(bool slots, const WaitContext& wait) {
  for (const StoredSlice& each : slices_) {
    if ((each.is_slot && !slots) || communicator_->rank() >= each.slice.parts) continue;
    const Tensor part = *store_.read(each.local);
    communicator_->send(part.raw(), part.elements(), part.dtype(), 0, StreamRef::host(), wait);
  }
}

void TensorService::gather(const WaitContext& wait) {
  if (slices_.empty() || communicator_->size() == 1) return;
  ask(Request::Gather, wait);
  for (const StoredSlice& each : slices_) {
    if (each.is_slot) continue;
    const Tensor whole = gather_one(each, wait);
    if (!store_.contains(each.model))
      store_.get_or_create(each.model, whole.dtype(), whole.shape(), store_.domain(each.local));
    store_.write(each.model, whole);
  }
}

std::vector<ShardInfo> TensorService::save(const std::filesystem::path& directory, const WaitContext& wait) {
  if (slices_.empty() || communicator_->size() == 1) return {};
  ask(Request::Save, wait);
  ShardWriter writer(directory / kWholeVariables);
  for (const StoredSlice& each : slices_) {
    const Tensor whole = gather_one(each, wait);
    writer.add({each.model,
                whole.dtype(),
                {whole.shape().dims().begin(), whole.shape().dims().end()},
                whole.bytes()},
               whole.as_bytes());
  }
  return {writer.finish()};
}

void TensorService::release(const WaitContext& wait) {
  if (communicator_->size() > 1) ask(Request::Release, wait);
}

void TensorService::serve(std::chrono::nanoseconds patience) {
  for (;;) {
    const WaitContext wait = WaitContext::with_timeout(patience);
    const Request request = ask(Request::Release, wait);
    if (request == Request::Release) return;
    hand_over(request == Request::Save, wait);
  }
}

}  // namespace braid::worker
