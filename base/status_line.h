// The last line of a terminal on standard error, redrawn in place, such as a progress bar. Whatever else is
// written to the terminal goes above it: the log does (base/log.h), as does anything in above_status_line().
// One process has one. Thread rule: safe from any thread.
#pragma once

#include <functional>
#include <string>

namespace braid {

/// Columns of the terminal on standard error now; `fallback` where there is none, or it does not say.
int terminal_columns(int fallback = 80);
/// Whether standard error is a terminal that can go back in a line (not TERM=dumb).
bool can_redraw();
/// Whether it is one whose user wants colour: NO_COLOR and TERM are respected.
bool wants_colour();

/// Replaces the line. REQUIRES: it is a single one that is narrower than the terminal; escape codes of
/// colours do not count.
void draw_status_line(std::string line);
/// The line stays where it is, and what follows goes below it. Nothing when there is none.
void end_status_line();
/// The line is gone.
void clear_status_line();
/// Takes the line away, calls `write`, and draws the line again.
void above_status_line(const std::function<void()>& write);

}  // namespace braid
