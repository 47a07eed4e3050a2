// Attributes of nodes by which values and variables of a program of the device lie on the host.
#pragma once

namespace braid {

/// Of braid.HostToDevice and braid.FetchState, a bool: what is brought lies in the step's arena, so the copy
/// waits until that memory is free. Without it there is memory for each step in flight.
inline constexpr const char* kInArena = "in_arena";
/// Of a variable's handle, a bool: the variable is the host's, in page-locked memory, and nodes of the device
/// copy it.
inline constexpr const char* kOnHost = "on_host";

}  // namespace braid
