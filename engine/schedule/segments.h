// Cuts a program's instruction lists into segments: maximal parts that are issued as a whole. Host streams
// are one segment that is never captured. Streams that can be captured are cut where a host op lies between
// two of their ops, since a host-to-device dependency enters a captured segment only at its head; a
// device-to-host one may leave anywhere.
#pragma once

#include "engine/program/program.h"

namespace braid {

/// Replaces program.segments. REQUIRES: instruction lists are written and ops are in issue order.
void cut_segments(Program& program);

}  // namespace braid
