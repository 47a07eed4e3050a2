// The host stream: the conformance suite, and what only host streams have: tasks, running inline, the meter.
#include "engine/device/host_stream.h"

#include "engine/device/stream_meter.h"
#include "tests/engine/device/stream_conformance.h"
#include "tests/support/in_some_attempt.h"
#include "tests/support/message_of.h"

namespace braid::testing {
namespace {

struct HostHarness {
  using Stream = HostStream;
  using Event = braid::Event;
  static std::unique_ptr<Stream> make(const std::string& name) {
    return std::make_unique<HostStream>(name, "compute");
  }
  static void launch(Stream& s, std::function<void()> f) { s.launch(std::move(f)); }
  static void record(Stream& s, Event& e, std::uint64_t value) { s.record(e, value); }
  static void wait(Stream& s, Event& e, std::uint64_t value, WaitContext context) {
    s.wait(e, value, std::move(context));
  }
  static void synchronize(Stream& s, const WaitContext& context) { s.synchronize(context); }
};

}  // namespace

INSTANTIATE_TYPED_TEST_SUITE_P(Host, StreamOrder, HostHarness);
INSTANTIATE_TYPED_TEST_SUITE_P(Host, StreamControl, HostHarness);

namespace {

using std::chrono::milliseconds;

WaitContext in_time() { return WaitContext::with_timeout(std::chrono::seconds(60)); }

TEST(HostStreamTest, AQueueOfAnyLengthKeepsItsOrder) {
  HostStream stream("long", "compute");
  Event gate;
  stream.wait(gate, 1, in_time());
  std::uint64_t next = 0;
  struct State {
    std::uint64_t* next;
  } state{&next};
  for (std::uint64_t i = 0; i < 5000; ++i) {
    stream.enqueue({[](void* context, std::uint64_t argument) noexcept {
                      auto* s = static_cast<State*>(context);
                      if (*s->next == argument) ++*s->next;
                    },
                    &state, i});
  }
  gate.signal(1);
  stream.synchronize(in_time());
  EXPECT_EQ(next, 5000U);
}

TEST(HostStreamTest, RunsInlineOnlyWhenNothingElseIsThere) {
  HostStream stream("inline", "compute");
  std::thread::id where;
  const HostStream::Task task{[](void* context, std::uint64_t) noexcept {
                                *static_cast<std::thread::id*>(context) = std::this_thread::get_id();
                              },
                              &where, 0};
  stream.synchronize(in_time());
  ASSERT_TRUE(stream.try_run_inline(task));
  EXPECT_EQ(where, std::this_thread::get_id());
  Event gate;
  stream.wait(gate, 1, in_time());
  EXPECT_FALSE(stream.try_run_inline(task));
  gate.signal(1);
  stream.synchronize(in_time());
}

TEST(HostStreamTest, WaitsAreBookedUnderTheirCause) {
  in_some_attempt([] {
    HostStream stream("waits", "compute");
    Event event;
    struct State {
      HostStream* stream;
      Event* event;
    } state{&stream, &event};
    stream.enqueue({[](void* context, std::uint64_t) noexcept {
                      auto* s = static_cast<State*>(context);
                      s->stream->await(*s->event, 1, in_time(), cause_id("pull"));
                    },
                    &state, 0});
    std::this_thread::sleep_for(milliseconds(50));
    event.signal(1);
    stream.synchronize(in_time());
    const MeterReading reading = stream.meter().read(MeterTime::clock::now());
    EXPECT_NEAR(reading.wait_seconds()["pull"], 0.050, 0.015);
    EXPECT_EQ(reading.waits, 1U);
  });
}

TEST(StreamMeterTest, StatesAddUpToTheWallTime) {
  StreamMeter meter(nullptr);
  const MeterTime t0 = MeterTime::clock::now();
  meter.run(t0 + milliseconds(10));
  meter.wait(cause_id("push"), t0 + milliseconds(25));
  meter.flight_begin(t0 + milliseconds(30));  // busy although the thread waits
  meter.run(t0 + milliseconds(40));
  meter.flight_end(t0 + milliseconds(50));
  meter.idle(t0 + milliseconds(70));
  MeterReading r = meter.read(t0 + milliseconds(100));
  EXPECT_NEAR(std::chrono::duration<double>(r.busy).count(), 0.055, 1e-3);
  EXPECT_NEAR(r.wait_seconds()["push"], 0.005, 1e-3);
  EXPECT_NEAR(r.wait_seconds()["idle"], 0.040, 1e-3);
}

TEST(StreamMeterTest, OverlappingFlightsCountOnce) {
  StreamMeter meter(nullptr);
  const MeterTime t0 = MeterTime::clock::now();
  for (int i = 0; i < 4; ++i) meter.flight_begin(t0 + milliseconds(10 + i));
  for (int i = 0; i < 4; ++i) meter.flight_end(t0 + milliseconds(20 + 5 * i));
  EXPECT_NEAR(std::chrono::duration<double>(meter.read(t0 + milliseconds(60)).busy).count(), 0.025, 1e-3);
}

TEST(StreamMeterTest, IdleTimeInWhichTheProcessWaitsForInputIsInput) {
  InputClock input;
  StreamMeter meter(&input);
  const MeterTime t0 = MeterTime::clock::now();
  input.begin(t0 + milliseconds(20));
  input.end(t0 + milliseconds(50));
  meter.run(t0 + milliseconds(60));
  input.begin(t0 + milliseconds(65));  // while busy: not a wait of this stream
  input.end(t0 + milliseconds(75));
  meter.idle(t0 + milliseconds(80));
  MeterReading r = meter.read(t0 + milliseconds(90));
  EXPECT_NEAR(r.wait_seconds()["input"], 0.030, 1e-3);
  EXPECT_NEAR(r.wait_seconds()["idle"], 0.040, 1e-3);
  EXPECT_NEAR(std::chrono::duration<double>(r.busy).count(), 0.020, 1e-3);
}

TEST(EventTest, ManySleepersAllWake) {
  Event event;
  std::vector<std::thread> threads;
  std::atomic<int> woken{0};
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      event.wait(1, in_time(), "test");
      ++woken;
    });
  std::this_thread::sleep_for(milliseconds(5));
  event.signal(1);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(woken, 8);
}

TEST(EventTest, NoSignalIsLost) {
  // Two threads hand a counter to each other; a lost wake-up would end in the deadline.
  Event ping, pong;
  std::thread other([&] {
    for (std::uint64_t n = 1; n <= 5000; ++n) {
      ping.wait(n, in_time(), "ping");
      pong.signal(n);
    }
  });
  for (std::uint64_t n = 1; n <= 5000; ++n) {
    ping.signal(n);
    pong.wait(n, in_time(), "pong");
  }
  other.join();
}

TEST(EventTest, TheErrorSaysWhatWasWaitedFor) {
  Event event;
  EXPECT_EQ(message_of<DeadlineExceeded>(
                [&] { event.wait(1, WaitContext::with_timeout(milliseconds(1)), "the other stream"); }),
            "the other stream: deadline exceeded");
}

}  // namespace
}  // namespace braid::testing
