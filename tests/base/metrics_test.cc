#include "base/metrics.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/support/expect_error.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

TEST(MetricsTest, RendersThePrometheusTextFormat) {
  MetricsRegistry registry;
  registry.counter("braid_steps_total", "Steps.").add(3);
  registry.gauge("braid_loss_ratio", "Loss.", {{"job", "a\"b\\c\nd"}}).set(0.25);
  Histogram& h = registry.histogram("braid_step_seconds", "Time of a step.", {0.1, 1}, {{"stream", "0"}});
  for (double seconds : {0.05, 0.1, 0.5, 5.0}) h.observe(seconds);
  EXPECT_EQ(registry.render(),
            "# HELP braid_loss_ratio Loss.\n"
            "# TYPE braid_loss_ratio gauge\n"
            "braid_loss_ratio{job=\"a\\\"b\\\\c\\nd\"} 0.25\n"
            "# HELP braid_step_seconds Time of a step.\n"
            "# TYPE braid_step_seconds histogram\n"
            "braid_step_seconds_count{stream=\"0\"} 4\n"
            "braid_step_seconds_sum{stream=\"0\"} 5.65\n"
            "braid_step_seconds_bucket{stream=\"0\",le=\"0.1\"} 2\n"
            "braid_step_seconds_bucket{stream=\"0\",le=\"1\"} 3\n"
            "braid_step_seconds_bucket{stream=\"0\",le=\"+Inf\"} 4\n"
            "# HELP braid_steps_total Steps.\n"
            "# TYPE braid_steps_total counter\n"
            "braid_steps_total 3\n");
}

TEST(MetricsTest, TheSameNameAndLabelsAreTheSameObject) {
  MetricsRegistry registry;
  Counter& a = registry.counter("braid_a_total", "A.", {{"stream", "1"}});
  EXPECT_EQ(&a, &registry.counter("braid_a_total", "A.", {{"stream", "1"}}));
  EXPECT_NE(&a, &registry.counter("braid_a_total", "A.", {{"stream", "2"}}));
  a.add(2);
  a.add();
  EXPECT_EQ(registry.counter("braid_a_total", "A.", {{"stream", "1"}}).value(), 3);
}

TEST(MetricsTest, RefusesBadNamesAndMixedKinds) {
  MetricsRegistry registry;
  registry.counter("braid_a_total", "A.");
  EXPECT_ERROR(registry.gauge("braid_a_total", "A."), InvalidArgument,
               HasSubstr("'braid_a_total' is in use"));
  EXPECT_ERROR(registry.counter("braid-a", "A."), InvalidArgument, HasSubstr("'braid-a'"));
  EXPECT_ERROR(registry.counter("", "A."), InvalidArgument, HasSubstr("bad metric name"));
  EXPECT_ERROR(registry.counter("braid_b", "B.", {{"1x", ""}}), InvalidArgument, HasSubstr("'1x'"));
  EXPECT_ERROR(registry.counter("braid_b", "B.", {{"__x", ""}}), InvalidArgument, HasSubstr("'__x'"));
  EXPECT_ERROR(registry.histogram("braid_h", "H.", {1, 2}, {{"le", ""}}), InvalidArgument, HasSubstr("'le'"));
  EXPECT_ERROR(registry.histogram("braid_h", "H.", {2, 1}), InvalidArgument, HasSubstr("bounds"));
  registry.histogram("braid_h", "H.", {1, 2});
  EXPECT_ERROR(registry.histogram("braid_h", "H.", {1, 3}), InvalidArgument,
               HasSubstr("other histogram bounds"));
  EXPECT_ERROR(registry.counter("braid_a_total", "A.").add(-1), InvalidArgument,
               HasSubstr("cannot go up by -1"));
  EXPECT_EQ(registry.render(),
            "# HELP braid_a_total A.\n# TYPE braid_a_total counter\nbraid_a_total 0\n"
            "# HELP braid_h H.\n# TYPE braid_h histogram\nbraid_h_count 0\nbraid_h_sum 0\n"
            "braid_h_bucket{le=\"1\"} 0\nbraid_h_bucket{le=\"2\"} 0\nbraid_h_bucket{le=\"+Inf\"} 0\n");
}

TEST(MetricsTest, CollectUpdatesRunBeforeEachRenderAndMayLookUp) {
  MetricsRegistry registry;
  int calls = 0;
  registry.on_collect([&] { registry.gauge("braid_calls", "Calls.").set(++calls); });
  EXPECT_THAT(registry.render(), HasSubstr("braid_calls 1\n"));
  EXPECT_THAT(registry.render(), HasSubstr("braid_calls 2\n"));
}

TEST(MetricsTest, NothingIsLostWhenThreadsAddAndRender) {
  MetricsRegistry registry;
  Histogram& h = registry.histogram("braid_h_seconds", "H.", {0.5});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) {
        registry.counter("braid_c_total", "C.", {{"t", std::to_string(i % 3)}}).add();
        h.observe(t);
        if (i % 500 == 0) registry.render();
      }
    });
  for (std::thread& thread : threads) thread.join();
  double sum = 0;
  for (const char* t : {"0", "1", "2"}) sum += registry.counter("braid_c_total", "C.", {{"t", t}}).value();
  EXPECT_EQ(sum, 8000);
  const std::string text = registry.render();
  EXPECT_THAT(text, HasSubstr("braid_h_seconds_bucket{le=\"0.5\"} 2000\n"));
  EXPECT_THAT(text, HasSubstr("braid_h_seconds_sum 12000\n"));
}

}  // namespace
}  // namespace braid
