// What `braid top` draws: a job as lines of text for a terminal of some width. Thread rule: pure functions.
//
// A row a worker, a bar a stream: each character of a bar is a share of the latest seconds, '#' at work, and
// a letter for what it waits for (bar_legend()). Bars stand below their worker where all fit, else beside it.
// What is wider than the terminal is cut; a line holds no control characters but those of colours.
#pragma once

#include <string>
#include <vector>

#include "watch/job_status.h"

namespace braid::watch {

enum class TopSort { Task, StepTime, Rate, Busy, Input, Peers };
const char* sort_name(TopSort sort);
TopSort next_sort(TopSort sort);

struct TopOptions {
  int columns = 80;
  int rows = 0;  // of the terminal; 0: as many as there are lines
  bool colour = false;
  TopSort sort = TopSort::Task;
  std::string filter;   // only tasks whose name contains it
  int selected = -1;    // of the tasks that are drawn; -1: none
  bool zoomed = false;  // the selected one alone, with all that it tells
  int scroll = 0;       // lines of the middle part that are above the first one
  std::string prompt;   // what is being typed; takes the place of the keys
};

struct TopPicture {
  std::vector<std::string> lines;
  std::vector<std::string> tasks;  // in the order drawn, for `selected`
  int most_scroll = 0;
};
TopPicture draw_top(const JobStatus& job, const TopOptions& options);

/// One bar of `width` characters: shares of a window, '#' busy, letters for causes, '.' idle.
std::string stream_bar(const Stream& stream, int width, bool colour);
std::string bar_legend(bool colour);

/// Without bytes that a terminal would take for orders; what is not ASCII becomes '?'.
std::string plain_text(const std::string& text);
/// "1,234", "56.7k", "8.90M".
std::string short_count(double count);

}  // namespace braid::watch
