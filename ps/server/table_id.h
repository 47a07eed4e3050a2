// The number of a table among all of a server: the dense ones, then the sparse ones. Requests number each
// kind from 0, and both numbers are std::uint32_t there; so this one is a type of its own, which ServerTables
// makes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace braid::ps {

enum class TableId : std::uint32_t {};

inline std::size_t index_of(TableId table) { return static_cast<std::size_t>(table); }

}  // namespace braid::ps
