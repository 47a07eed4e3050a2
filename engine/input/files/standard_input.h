// Standard input as a file, "-", for pipes: read once. Its first MiB may be looked at several
// times, as who finds out what it is does. Private to engine/input. Thread rule: one thread.
#pragma once

#include <memory>

#include "engine/input/files/byte_source.h"

namespace braid {

/// From its first byte on. Throws, when it is opened: InvalidArgument (it was read further than can be
/// repeated); when it is read: Unavailable (nothing came until the deadline, remote_files.h).
std::unique_ptr<ByteSource> open_standard_input();

}  // namespace braid
