// The files of the Unix sockets by which workers of a server's host reach it. A server that is killed leaves
// its file behind; the next one that starts on the host takes it away. Thread rule: safe from any thread.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

namespace braid::ps {

/// "/tmp/braid-ps-<random>-<index>.sock": containers that share /tmp have equal process ids.
std::string new_socket_file(int index);

/// Removes the files of such names in `directory` that are this user's, older than `age`, and on which nobody
/// listens: no process ever does again. A server binds its socket a moment before it listens; `age` is far
/// beyond that.
void remove_dead_sockets(const std::filesystem::path& directory = "/tmp",
                         std::chrono::seconds age = std::chrono::minutes(1));

}  // namespace braid::ps
