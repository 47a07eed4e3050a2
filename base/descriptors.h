// The limit of a process's file descriptors, and what of it strangers may take. Whoever reaches a port can
// open connections without end; files, and connections that this process opens itself, are to find
// descriptors still. Thread rule: safe from any thread.
#pragma once

namespace braid {

/// Takes what the hard limit allows, up to 65,536: the usual soft limit of 1,024 is for programs that
/// select().
void raise_descriptor_limit();

/// Whether a connection that was accepted as `descriptor` may stay. The system gives the lowest free number,
/// so one near the limit says how many are open; the last quarter, at most 256, is not for connections from
/// outside.
bool leaves_descriptors(int descriptor);

}  // namespace braid
