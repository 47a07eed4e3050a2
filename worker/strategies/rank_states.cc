#include "worker/strategies/rank_states.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/checkpoint_values.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/communicator.h"

namespace braid::worker {
namespace {

constexpr const char* kFile = "ranks.shard";

CheckpointEntry entry_of(const std::string& name, const Shape& shape) {
  return {name,
          DType::Float32,
          {shape.dims().begin(), shape.dims().end()},
          static_cast<std::uint64_t>(shape.elements()) * sizeof(float)};
}

std::string of_rank(const std::string& variable, int rank) { return variable + "/" + std::to_string(rank); }

/// Adds the stored value to `to`; false where there is none.
bool add_stored(const CheckpointValues& values, const std::string& name, std::span<float> to) {
  const auto at = values.values().find(name);
  if (at == values.values().end()) return false;
  const std::vector<std::byte> bytes = values.read(name);
  if (at->second.dtype != DType::Float32 || bytes.size() != to.size_bytes())
    throw InvalidArgument("checkpoint '" + values.directory().string() + "': '" + name + "' is " +
                          std::string(dtype_name(at->second.dtype)) + Shape(at->second.shape).to_string() +
                          ", the job has " + std::to_string(to.size()) + " elements");
  for (std::size_t i = 0; i < to.size(); ++i) {
    float value = 0;
    std::memcpy(&value, bytes.data() + i * sizeof(float), sizeof(float));
    to[i] += value;
  }
  return true;
}

/// What each of `world` ranks begins with, of `part` elements each.
std::vector<float> stored_own(const CheckpointValues& values, const std::string& variable, int world,
                              std::size_t part) {
  std::vector<float> all(part * static_cast<std::size_t>(world));
  int ranks = 0;
  while (values.values().contains(of_rank(variable, ranks))) ++ranks;
  if (ranks == world) {
    for (int r = 0; r < world; ++r)
      add_stored(values, of_rank(variable, r), {all.data() + part * static_cast<std::size_t>(r), part});
    return all;
  }
  std::vector<float> sum(part);
  for (int r = 0; r < ranks; ++r) add_stored(values, of_rank(variable, r), sum);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = sum[i % part] / static_cast<float>(world);
  return all;
}

std::vector<float> stored_pieces(const CheckpointValues& values, const std::vector<RankState::Piece>& pieces,
                                 std::size_t elements) {
  std::vector<float> all(elements);
  std::size_t at = 0;
  for (const RankState::Piece& piece : pieces) {
    const std::span<float> to(all.data() + at, static_cast<std::size_t>(piece.shape.elements()));
    if (!add_stored(values, piece.name, to)) {
      log_warning("the checkpoint of step {} has no '{}', which keeps its initial value", values.meta().step,
                  piece.name);
      std::ranges::fill(to, piece.initial_value);
    }
    at += to.size();
  }
  return all;
}

}  // namespace

bool RankStates::has(const std::string& variable) const {
  return std::any_of(states_.begin(), states_.end(),
                     [&](const RankState& state) { return state.variable == variable; });
}

void RankStates::restore(const CheckpointInfo* restored, const WaitContext& wait) {
  if (states_.empty()) return;
  std::int64_t has = restored ? 1 : 0;
  communicator_->broadcast(&has, 1, DType::Int64, 0, StreamRef::host(), wait);
  if (has == 0) return;
  const int world = communicator_->size();
  const bool leads = communicator_->rank() == 0;
  std::optional<CheckpointValues> values;
  if (leads) values.emplace(*restored);
  for (const RankState& state : states_) {
    Tensor own = *store_.read(state.variable);
    const auto part = static_cast<std::size_t>(own.elements());
    if (leads) {
      const std::vector<float> all =
          state.pieces.empty() ? stored_own(*values, state.variable, world, part)
                               : stored_pieces(*values, state.pieces, part * static_cast<std::size_t>(world));
      for (int r = 1; r < world; ++r)
        communicator_->send(all.data() + part * static_cast<std::size_t>(r), own.elements(), DType::Float32,
                            r, StreamRef::host(), wait);
      std::copy_n(all.begin(), part, own.data<float>().begin());
    } else {
      communicator_->recv(own.raw(), own.elements(), DType::Float32, 0, StreamRef::host(), wait);
    }
    store_.write(state.variable, own);
  }
}

std::vector<float> RankStates::collect(const RankState& state, const WaitContext& wait) const {
  const Tensor own = *store_.read(state.variable);
  if (communicator_->rank() != 0) {
    communicator_->send(own.raw(), own.elements(), DType::Float32, 0, StreamRef::host(), wait);
    return {};
  }
  const auto part = static_cast<std::size_t>(own.elements());
  std::vector<float> all(part * static_cast<std::size_t>(communicator_->size()));
  std::ranges::copy(own.data<float>(), all.begin());
  for (int r = 1; r < communicator_->size(); ++r)
    communicator_->recv(all.data() + part * static_cast<std::size_t>(r), own.elements(), DType::Float32, r,
                        StreamRef::host(), wait);
  return all;
}

RankStates::Request RankStates::ask(Request request, const WaitContext& wait) {
  auto word = static_cast<std::int64_t>(request);
  communicator_->broadcast(&word, 1, DType::Int64, 0, StreamRef::host(), wait);
  return static_cast<Request>(word);
}

ShardInfo RankStates::save(const std::filesystem::path& directory, const WaitContext& wait) {
  ask(Request::Save, wait);
  ShardWriter writer(directory / kFile);
  for (const RankState& state : states_) {
    const std::vector<float> all = collect(state, wait);
    const std::span<const std::byte> bytes = std::as_bytes(std::span(all));
    if (state.pieces.empty()) {
      const Shape shape = store_.read(state.variable)->shape();
      const std::size_t part = static_cast<std::size_t>(shape.elements()) * sizeof(float);
      for (int r = 0; r < communicator_->size(); ++r)
        writer.add(entry_of(of_rank(state.variable, r), shape),
                   bytes.subspan(part * static_cast<std::size_t>(r), part));
      continue;
    }
    std::size_t at = 0;
    for (const RankState::Piece& piece : state.pieces) {
      const CheckpointEntry entry = entry_of(piece.name, piece.shape);
      writer.add(entry, bytes.subspan(at, entry.bytes));
      at += entry.bytes;
    }
  }
  return writer.finish();
}

void RankStates::release(const WaitContext& wait) { ask(Request::Release, wait); }

void RankStates::serve(std::chrono::nanoseconds patience) {
  for (;;) {
    const WaitContext wait = WaitContext::with_timeout(patience);
    if (ask(Request::Release, wait) == Request::Release) return;
    for (const RankState& state : states_) collect(state, wait);
  }
}

}  // namespace braid::worker
