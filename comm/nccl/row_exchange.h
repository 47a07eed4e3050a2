// Exchanges of rows by the GPUs' own stores into each other's memory (peer_window.h), in one kernel. Numbers
// on the devices say which rows, so what travels depends on the batch while the launch does not, and a
// captured graph can hold it.
#pragma once

#include <memory>
#include <string>

#include "comm/nccl/peer_window.h"
#include "comm/piece_exchange.h"

namespace braid::comm {

bool fits_row_exchange(const RowLayout& layout);
/// Why the current device cannot: all of a kernel's blocks must run at once. Empty: it can.
std::string why_no_row_exchange();

/// REQUIRES: fits_row_exchange(layout). `abort`: as in make_peer_exchange() of peer_exchange.h.
std::unique_ptr<PieceExchange> make_row_exchange(std::unique_ptr<PeerWindow> window, RowLayout layout,
                                                 const int* abort);

}  // namespace braid::comm
