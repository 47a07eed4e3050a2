// What every communicator does, as checks on one rank that run on all ranks at once: the ranks are threads of
// a test (local, ring) or processes (MPI). Inputs are small integers whose reductions have closed forms and
// are exact in every type.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"
#include "tests/comm/error_of.h"

namespace braid::comm::conformance {

/// Far beyond what anything here takes, on a machine that is busy with other things.
inline WaitContext soon() { return WaitContext::with_timeout(std::chrono::seconds(60)); }

/// 0, 1, odd, smaller than a group, large and no multiple of any size.
inline const std::vector<std::int64_t> kCounts{0, 1, 2, 3, 7, 4099, 130003};

/// Element i of rank r's input: in [0, 17 + r).
inline int value_of(int rank, std::int64_t i) { return static_cast<int>((i * 7 + rank * 3) % 17) + rank; }

template <class T>
std::vector<T> input_of(int rank, std::int64_t count) {
  std::vector<T> data(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i)
    data[static_cast<std::size_t>(i)] = static_cast<T>(value_of(rank, i));
  return data;
}

inline int reduced_value(ReduceOp op, int size, std::int64_t i) {
  int result = value_of(0, i);
  for (int rank = 1; rank < size; ++rank) {
    auto value = value_of(rank, i);
    result = op == ReduceOp::Sum   ? result + value
             : op == ReduceOp::Max ? std::max(result, value)
                                   : std::min(result, value);
  }
  return result;
}

template <class T>
std::vector<T> reduced(ReduceOp op, int size, std::int64_t first, std::int64_t count) {
  std::vector<T> data(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i)
    data[static_cast<std::size_t>(i)] = static_cast<T>(reduced_value(op, size, first + i));
  return data;
}

/// Block r of `all` is what `expected(r)` says.
template <class T, class Expected>
void expect_blocks(const std::vector<T>& all, int size, std::int64_t count, Expected expected) {
  for (int rank = 0; rank < size; ++rank) {
    std::vector<T> block(all.begin() + rank * count, all.begin() + (rank + 1) * count);
    ASSERT_EQ(block, expected(rank)) << "block " << rank << ", count " << count;
  }
}

template <class T>
void check_all_reduce(Communicator& comm) {
  for (auto op : {ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min})
    for (auto count : kCounts) {
      auto input = input_of<T>(comm.rank(), count);
      std::vector<T> output(input.size());
      comm.all_reduce(input.data(), output.data(), count, dtype_of<T>, op, StreamRef::host(), soon());
      for (std::int64_t i = 0; i < count; ++i)
        ASSERT_EQ(output[i], static_cast<T>(reduced_value(op, comm.size(), i)))
            << "count " << count << " at " << i;
      ASSERT_EQ(input, input_of<T>(comm.rank(), count)) << "the input is left alone";
      comm.all_reduce(input.data(), input.data(), count, dtype_of<T>, op, StreamRef::host(), soon());
      ASSERT_EQ(input, output) << "in place, count " << count;
    }
}

template <class T>
void check_reduce_scatter(Communicator& comm) {
  for (auto op : {ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min})
    for (auto count : kCounts) {
      auto input = input_of<T>(comm.rank(), count * comm.size());
      std::vector<T> output(static_cast<std::size_t>(count));
      comm.reduce_scatter(input.data(), output.data(), count, dtype_of<T>, op, StreamRef::host(), soon());
      ASSERT_EQ(output, reduced<T>(op, comm.size(), comm.rank() * count, count)) << "count " << count;
    }
}

template <class T>
void check_moves(Communicator& comm) {
  auto size = comm.size(), me = comm.rank();
  for (auto count : kCounts) {
    auto input = input_of<T>(me, count);
    std::vector<T> gathered(input.size() * static_cast<std::size_t>(size));
    comm.all_gather(input.data(), gathered.data(), count, dtype_of<T>, StreamRef::host(), soon());
    expect_blocks(gathered, size, count, [&](int from) { return input_of<T>(from, count); });

    for (int root = 0; root < size; ++root) {
      auto data = input_of<T>(me, count);
      comm.broadcast(data.data(), count, dtype_of<T>, root, StreamRef::host(), soon());
      ASSERT_EQ(data, input_of<T>(root, count)) << "root " << root << " count " << count;
    }

    std::vector<T> blocks, exchanged(gathered.size());
    for (int to = 0; to < size; ++to) {
      auto block = input_of<T>(me * 5 + to, count);
      blocks.insert(blocks.end(), block.begin(), block.end());
    }
    comm.all_to_all(blocks.data(), exchanged.data(), count, dtype_of<T>, StreamRef::host(), soon());
    expect_blocks(exchanged, size, count, [&](int from) { return input_of<T>(from * 5 + me, count); });
  }
}

/// How many elements rank `from` sends to rank `to` where each pair has its own number; 0 for some.
inline std::int64_t pair_count(int from, int to, std::int64_t count) {
  return (from + 2 * to) % 3 == 0 ? 0 : count + (from * 3 + to * 5) % 4;
}

template <class T>
void check_all_to_all_of_counts(Communicator& comm) {
  const auto size = comm.size(), me = comm.rank();
  for (auto count : kCounts) {
    std::vector<std::int64_t> sends, receives;
    std::vector<T> input, expected;
    for (int other = 0; other < size; ++other) {
      sends.push_back(pair_count(me, other, count));
      receives.push_back(pair_count(other, me, count));
      const auto sent = input_of<T>(me * 5 + other, sends.back());
      const auto received = input_of<T>(other * 5 + me, receives.back());
      input.insert(input.end(), sent.begin(), sent.end());
      expected.insert(expected.end(), received.begin(), received.end());
    }
    std::vector<T> output(expected.size());
    comm.all_to_all(input.data(), sends, output.data(), receives, dtype_of<T>, StreamRef::host(), soon());
    ASSERT_EQ(output, expected) << "count " << count;
  }
}

/// A token goes around the ring, each rank adds one; then pairs exchange in an order that cannot deadlock.
inline void check_send_recv(Communicator& comm) {
  auto size = comm.size(), me = comm.rank();
  if (size == 1) return;
  for (auto count : kCounts) {
    auto token = input_of<std::int64_t>(0, count);
    auto right = (me + 1) % size, left = (me + size - 1) % size;
    auto bytes = DType::Int64;
    if (me == 0) comm.send(token.data(), count, bytes, right, StreamRef::host(), soon());
    comm.recv(token.data(), count, bytes, left, StreamRef::host(), soon());
    for (auto& value : token) ++value;
    if (me != 0) comm.send(token.data(), count, bytes, right, StreamRef::host(), soon());
    auto added = me == 0 ? size : me;
    for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(token[i], value_of(0, i) + added);
    comm.barrier(soon());
  }
}

/// Sums of numbers of very different size, whose last bits depend on the order of additions.
inline void check_repeated_bits(Communicator& comm) {
  for (std::int64_t count : {100, 100003}) {
    std::vector<float> input(static_cast<std::size_t>(count)), first(input.size()), again(input.size());
    for (std::int64_t i = 0; i < count; ++i)
      input[i] = (i % 2 ? 1.0f : -1.0f) * std::ldexp(1.0f + static_cast<float>(value_of(comm.rank(), i)) / 17,
                                                     static_cast<int>((i + comm.rank() * 5) % 24));
    comm.all_reduce(input.data(), first.data(), count, DType::Float32, ReduceOp::Sum, StreamRef::host(),
                    soon());
    for (int repeat = 0; repeat < 5; ++repeat) {
      comm.all_reduce(input.data(), again.data(), count, DType::Float32, ReduceOp::Sum, StreamRef::host(),
                      soon());
      ASSERT_EQ(std::memcmp(first.data(), again.data(), first.size() * sizeof(float)), 0);
    }
    std::vector<float> everybody(first.size() * static_cast<std::size_t>(comm.size()));
    comm.all_gather(first.data(), everybody.data(), count, DType::Float32, StreamRef::host(), soon());
    for (int rank = 0; rank < comm.size(); ++rank)
      ASSERT_EQ(std::memcmp(first.data(), everybody.data() + rank * count, first.size() * sizeof(float)), 0)
          << "rank " << rank << " has other bits";
  }
}

inline void check_barrier(Communicator& comm) {
  for (int i = 0; i < 50; ++i) comm.barrier(soon());
}

/// All that works. The communicator is whole afterwards.
inline void check_operations(Communicator& comm) {
  check_all_reduce<float>(comm);
  check_all_reduce<double>(comm);
  check_all_reduce<std::int32_t>(comm);
  check_all_reduce<std::int64_t>(comm);
  check_reduce_scatter<float>(comm);
  check_reduce_scatter<double>(comm);
  check_reduce_scatter<std::int32_t>(comm);
  check_reduce_scatter<std::int64_t>(comm);
  check_moves<float>(comm);
  check_moves<std::uint8_t>(comm);
  check_moves<std::uint16_t>(comm);
  check_moves<std::int64_t>(comm);
  check_all_to_all_of_counts<float>(comm);
  check_all_to_all_of_counts<std::uint8_t>(comm);
  check_all_to_all_of_counts<std::int64_t>(comm);
  check_send_recv(comm);
  check_repeated_bits(comm);
  check_barrier(comm);
}

struct WrongUse {
  const char* name;
  std::function<void(Communicator&)> call;
  const char* text;
};

/// Each is refused on the spot, by every rank that does it, and breaks the communicator.
inline const std::vector<WrongUse>& wrong_uses() {
  static const std::vector<WrongUse> uses{
      {"NegativeCount",
       [](Communicator& c) {
         float x = 0;
         c.all_reduce(&x, &x, -1, DType::Float32, ReduceOp::Sum, StreamRef::host(), soon());
       },
       "all_reduce: count is -1"},
      {"NullPointer",
       [](Communicator& c) { c.broadcast(nullptr, 4, DType::Float32, 0, StreamRef::host(), soon()); },
       "broadcast: null pointer for 4 elements"},
      {"TypeThatCannotBeReduced",
       [](Communicator& c) {
         std::uint8_t x = 0;
         c.all_reduce(&x, &x, 1, DType::UInt8, ReduceOp::Sum, StreamRef::host(), soon());
       },
       "all_reduce: elements of type uint8 cannot be reduced"},
      {"TypeWithoutSize",
       [](Communicator& c) {
         char x = 0;
         c.all_gather(&x, &x, 1, DType::String, StreamRef::host(), soon());
       },
       "all_gather: elements of type string cannot be sent"},
      {"CountsOfAnotherGroup",
       [](Communicator& c) {
         float x = 0;
         const std::vector<std::int64_t> counts(static_cast<std::size_t>(c.size()) + 1);
         c.all_to_all(&x, counts, &x, counts, DType::Float32, StreamRef::host(), soon());
       },
       "send counts for a group of"},
      {"NegativeCountOfAPair",
       [](Communicator& c) {
         float x = 0;
         const std::vector<std::int64_t> counts(static_cast<std::size_t>(c.size()), -1);
         c.all_to_all(&x, counts, &x, counts, DType::Float32, StreamRef::host(), soon());
       },
       "a send count is -1"},
      {"RootOutsideOfTheGroup",
       [](Communicator& c) {
         float x = 0;
         c.broadcast(&x, 1, DType::Float32, c.size(), StreamRef::host(), soon());
       },
       "is not a rank of a group of"},
      {"SendToItself",
       [](Communicator& c) {
         float x = 0;
         c.send(&x, 1, DType::Float32, c.rank(), StreamRef::host(), soon());
       },
       "destination is this rank itself"},
      {"CudaStream",
       [](Communicator& c) {
         float x = 0;
         c.all_reduce(&x, &x, 1, DType::Float32, ReduceOp::Sum, StreamRef{StreamKind::Cuda, nullptr}, soon());
       },
       "works on host streams only"},
  };
  return uses;
}

inline void check_broken(Communicator& comm) {
  float x = 0;
  auto text = error_of<Unavailable>(
      [&] { comm.all_reduce(&x, &x, 1, DType::Float32, ReduceOp::Sum, StreamRef::host(), soon()); });
  EXPECT_NE(text.find("the communicator is broken"), std::string::npos) << text;
}

inline void check_wrong_use(Communicator& comm, const WrongUse& use) {
  auto text = error_of<InvalidArgument>([&] { use.call(comm); });
  EXPECT_NE(text.find(use.text), std::string::npos) << text;
  EXPECT_NE(text.find("[" + std::string(comm.backend()) + "]"), std::string::npos) << text;
  check_broken(comm);
}

/// All ranks but rank 0 wait for each other here.
inline void gather_without_first(Communicator& comm) {
  std::uint8_t token = 0;
  auto send = [&](int rank) { comm.send(&token, 1, DType::UInt8, rank, StreamRef::host(), soon()); };
  auto receive = [&](int rank) { comm.recv(&token, 1, DType::UInt8, rank, StreamRef::host(), soon()); };
  if (comm.rank() == 1) {
    for (int other = 2; other < comm.size(); ++other) receive(other);
    for (int other = 2; other < comm.size(); ++other) send(other);
  } else {
    send(1);
    receive(1);
  }
}

/// Rank 0 does not come: the others name it, and what they name is broken. They begin together, since a rank
/// that came a deadline later than the first would be missing too.
inline void check_absence_from(
    Communicator& comm, const std::function<void(std::vector<float>&, const WaitContext&)>& operation) {
  if (comm.rank() == 0) return;
  gather_without_first(comm);
  auto started = std::chrono::steady_clock::now();
  std::vector<float> data(100000, 1.0f);
  auto text = error_of<DeadlineExceeded>(
      [&] { operation(data, WaitContext::with_timeout(std::chrono::seconds(1))); });
  EXPECT_NE(text.find("rank 0 ("), std::string::npos) << text;
  EXPECT_NE(text.find("did not take part"), std::string::npos) << text;
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(20));
  check_broken(comm);
}

inline void check_absence(Communicator& comm) {
  check_absence_from(comm, [&](std::vector<float>& data, const WaitContext& wait) {
    comm.all_reduce(data.data(), data.data(), static_cast<std::int64_t>(data.size()), DType::Float32,
                    ReduceOp::Sum, StreamRef::host(), wait);
  });
}

inline void check_absence_from_all_to_all(Communicator& comm) {
  check_absence_from(comm, [&](std::vector<float>& data, const WaitContext& wait) {
    const auto each = static_cast<std::int64_t>(data.size()) / comm.size();
    std::vector<float> output(data.size());
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(comm.size()), each);
    comm.all_to_all(data.data(), counts, output.data(), counts, DType::Float32, StreamRef::host(), wait);
  });
}

}  // namespace braid::comm::conformance
