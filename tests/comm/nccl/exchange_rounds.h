// Rounds of exchanges between ranks that write each other's memory, whose results say where everything came
// from. Ranks may share a GPU: nothing is allocated, freed or copied while an exchange is under way, which
// would wait for its kernels. Thread rule: a thread a rank.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "comm/split_exchange.h"
#include "tests/comm/nccl/device_array.h"

namespace braid::comm {

/// A rank, and how it opens exchanges with the others.
struct Party {
  int rank, size;
  std::function<std::shared_ptr<PieceExchange>(const PieceLayout&)> open_pieces;
  std::function<std::shared_ptr<PieceExchange>(const RowLayout&)> open_rows;
  std::function<void()> meet;  // returns when all have come
};

/// An exchange of which every rank, or rank 0 alone, has a piece of each of these sizes for every rank. What
/// a piece holds says where it comes from, and when.
class PieceRounds {
 public:
  PieceRounds(const Party& party, std::vector<std::int64_t> bytes, bool from_all = true)
      : party_(party), bytes_(std::move(bytes)), from_all_(from_all) {
    const std::int64_t ranks = party.size, rank = party.rank;
    std::int64_t message = 0;
    for (const std::int64_t size : bytes_) message += (size + 15) / 16 * 16;
    layout_.window_bytes.assign(static_cast<std::size_t>(ranks), message * ranks);
    std::int64_t place = 0;
    for (std::size_t t = 0; t < bytes_.size(); place += (bytes_[t++] + 15) / 16 * 16) {
      const std::int64_t size = bytes_[t];
      const int tensor = static_cast<int>(t);
      if (sends(party.rank)) layout_.own.push_back({tensor, 0, rank * size, rank * size, size});
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer == rank) continue;
        if (sends(party.rank))
          layout_.sent.push_back({tensor, peer, peer * size, rank * message + place, size});
        if (sends(peer))
          layout_.received.push_back({tensor, peer, peer * message + place, peer * size, size});
      }
      const auto floats = static_cast<std::size_t>(size * ranks + 3) / sizeof(float);
      inputs_.push_back(std::make_unique<DeviceArray>(floats, 0));
      outputs_.push_back(std::make_unique<DeviceArray>(floats, -1));
    }
    exchange_ = party.open_pieces(layout_);
  }

  bool opened() const { return exchange_ != nullptr; }

  void run(int round) {
    const auto ranks = static_cast<std::size_t>(party_.size);
    std::vector<void*> in, out;
    for (std::size_t t = 0; t < bytes_.size(); ++t) {
      std::vector<unsigned char> all;
      for (std::size_t to = 0; to < ranks; ++to) append(all, party_.rank, static_cast<int>(to), t, round);
      copy_to_device(inputs_[t]->get(), all.data(), all.size());
      in.push_back(inputs_[t]->get());
      out.push_back(outputs_[t]->get());
    }
    party_.meet();
    if (auto* const parts = dynamic_cast<SplitExchange*>(exchange_.get()); parts && round % 2 == 1) {
      parts->send(in.data(), ref(stream_));
      finish(stream_);  // whatever else is done before
      parts->take(in.data(), out.data(), ref(other_));
      finish(other_);
    } else {
      exchange_->run(in.data(), out.data(), ref(stream_));
      finish(stream_);
    }
    party_.meet();
    for (std::size_t t = 0; t < bytes_.size(); ++t) {
      std::vector<unsigned char> expected;
      for (std::size_t from = 0; from < (from_all_ ? ranks : 1); ++from)
        append(expected, static_cast<int>(from), party_.rank, t, round);
      std::vector<unsigned char> got(expected.size());
      BRAID_CUDA_CHECK(cudaMemcpy(got.data(), outputs_[t]->get(), got.size(), cudaMemcpyDeviceToHost));
      EXPECT_TRUE(got == expected) << "round " << round << ", piece " << t << " of " << bytes_[t] << " bytes";
    }
  }

 private:
  bool sends(int rank) const { return from_all_ || rank == 0; }

  void append(std::vector<unsigned char>& bytes, int from, int to, std::size_t t, int round) const {
    auto next = static_cast<unsigned>(from * 7919 + to * 104729 + static_cast<int>(t) * 31 + round * 1299709);
    for (std::int64_t i = 0; i < bytes_[t]; ++i) {
      next = next * 1664525U + 1013904223U;
      bytes.push_back(static_cast<unsigned char>(next >> 24));
    }
  }

  const Party& party_;
  const std::vector<std::int64_t> bytes_;
  const bool from_all_;
  const cuda::Stream stream_ = cuda::make_stream(), other_ = cuda::make_stream();
  PieceLayout layout_;
  std::vector<std::unique_ptr<DeviceArray>> inputs_, outputs_;
  std::shared_ptr<PieceExchange> exchange_;
};

/// An exchange of rows in which rank 0 has a table and every rank a list for it. Input 0 is the table (or a
/// rank's sums), 1 the lists of all ranks at rank 0, 2 places (or the own list).
class RowRounds {
 public:
  RowRounds(const Party& party, bool named, std::int64_t n, std::int64_t width)
      : party_(party), named_(named), n_(n), width_(width) {
    const std::int64_t ranks = party.size, rank = party.rank, bytes = width * 4;
    const std::int64_t message = (n * bytes + 15) / 16 * 16;
    layout_.named = named;
    layout_.window_bytes.assign(static_cast<std::size_t>(ranks), named ? message : 0);
    layout_.window_bytes[0] = named ? 0 : message * ranks;
    const RowMove any{.count = n, .bound = named ? kRows : n, .row_bytes = bytes};
    RowMove own = any, sent = any, received = any;
    own.from = own.to = sent.from = received.to = 0;
    own.numbers = 2;
    received.bound = n;
    if (named) {
      own.via = sent.numbers = 1;
      received.numbers = 2;
      if (rank == 0) layout_.own.push_back(own);
      for (int peer = 1; rank == 0 && peer < ranks; ++peer) {
        sent.peer = peer;
        sent.first = peer * n;
        layout_.sent.push_back(sent);
      }
      if (rank != 0) layout_.received.push_back(received);
    } else {
      sent.numbers = 2;
      sent.window = rank * message;
      received.numbers = 1;
      if (rank == 0) layout_.own.push_back(own);
      if (rank != 0) layout_.sent.push_back(sent);
      for (int peer = 1; rank == 0 && peer < ranks; ++peer) {
        received.peer = peer;
        received.first = received.to_row = peer * n;
        received.window = peer * message;
        layout_.received.push_back(received);
      }
    }
    exchange_ = party.open_rows(layout_);
  }

  bool opened() const { return exchange_ != nullptr; }

  void run(int round) {
    const auto ranks = static_cast<std::size_t>(party_.size), rank = static_cast<std::size_t>(party_.rank);
    const auto n = static_cast<std::size_t>(n_), width = static_cast<std::size_t>(width_);
    std::vector<std::vector<std::int32_t>> lists;
    std::vector<std::int32_t> all;
    for (std::size_t r = 0; r < ranks; ++r) {
      auto& list = lists.emplace_back(n, -1);
      const std::size_t used = (n * (r + 1) + static_cast<std::size_t>(round)) % (n + 1);
      for (std::size_t k = 0; k < used; ++k)
        list[k] = static_cast<std::int32_t>((k * 7 + r * 13 + static_cast<std::size_t>(round)) % kRows);
      all.insert(all.end(), list.begin(), list.end());
    }
    std::vector<std::int32_t> places(n);
    for (std::size_t k = 0; k < n; ++k) places[k] = static_cast<std::int32_t>((k * 31 + 5) % n);
    const auto value = [&](std::size_t of, std::size_t row, std::size_t column) {
      return static_cast<float>(of * 1000003 + row * 101 + column + static_cast<std::size_t>(round));
    };
    std::vector<float> table;
    for (std::size_t row = 0; row < (named_ ? std::size_t{kRows} : n); ++row)
      for (std::size_t c = 0; c < width; ++c) table.push_back(value(named_ ? 0 : rank, row, c));
    const DeviceArray from(table.size(), 0), wanted(all.size(), 0), own(n, 0),
        to(n * width * (named_ ? 1 : ranks), -1);
    copy(from, table);
    copy(wanted, all);
    copy(own, named_ ? places : lists[rank]);
    void* const inputs[] = {from.get(), wanted.get(), own.get()};
    void* const outputs[] = {to.get()};
    party_.meet();
    exchange_->run(inputs, outputs, ref(stream_));
    finish(stream_);
    party_.meet();
    const std::vector<float> got = to.read();
    std::size_t wrong = 0;
    for (std::size_t r = 0; r < (named_ ? 1 : ranks) && (named_ || rank == 0); ++r)
      for (std::size_t k = 0; k < n; ++k) {
        const std::size_t of = named_ ? rank : r, place = named_ ? static_cast<std::size_t>(places[k]) : k;
        const std::int32_t id = lists[of][place];
        for (std::size_t c = 0; c < width && (id >= 0 || !named_); ++c) {
          const float expected = id < 0   ? -1
                                 : named_ ? value(0, static_cast<std::size_t>(id), c)
                                          : value(r, k, c);
          wrong += got[(r * n + k) * width + c] == expected ? 0 : 1;
        }
      }
    EXPECT_EQ(wrong, 0U) << "round " << round << ", " << n << " rows of " << width;
  }

 private:
  static constexpr std::int64_t kRows = 777;
  template <class T>
  static void copy(const DeviceArray& to, const std::vector<T>& from) {
    copy_to_device(to.get(), from.data(), from.size() * sizeof(T));
  }

  const Party& party_;
  const bool named_;
  const std::int64_t n_, width_;
  const cuda::Stream stream_ = cuda::make_stream();
  RowLayout layout_;
  std::shared_ptr<PieceExchange> exchange_;
};

/// All sizes, five rounds each.
inline void exchange_pieces(const Party& party) {
  std::vector<std::int64_t> many;
  for (std::int64_t t = 0; t < 150; ++t) many.push_back(4 + 52 * (t % 7));
  for (const std::vector<std::int64_t>& bytes : {std::vector<std::int64_t>{64},
                                                 {1, 3, 17},
                                                 {4, 12, 100, 40000},
                                                 {16, 1 << 20, 48, (5 << 20) + 32},
                                                 many}) {
    for (const bool from_all : {true, false}) {
      PieceRounds pieces(party, bytes, from_all);
      ASSERT_TRUE(pieces.opened());
      for (int round = 0; round < 6; ++round) pieces.run(round);
      party.meet();
    }
  }
}

/// Rows that are named and rows that are marked, of several sizes. `large`: also those that take all blocks
/// of a kernel, of which ranks that share a GPU have room for two.
inline void exchange_rows(const Party& party, bool large = true) {
  for (const bool named : {true, false})
    for (const auto& [n, width] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {1, 4}, {100, 1}, {1000, 16}, {4097, 3}, {20000, 32}}) {
      if (!large && n * width > 20000) continue;
      RowRounds rows(party, named, n, width);
      ASSERT_TRUE(rows.opened());
      for (int round = 0; round < 5; ++round) rows.run(round);
      party.meet();
    }
}

}  // namespace braid::comm
