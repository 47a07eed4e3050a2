// Messages that a GPU writes into another one's memory (peer_window.h, comm/mailbox.h). A large one is copied
// by a copy engine, between a kernel of one thread that waits for room and one that says it is there; a small
// one is one kernel. The other side waits with one thread, and copies. Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/mailbox.h"
#include "comm/nccl/peer_window.h"

namespace braid::comm {

/// What PeerWindow::open() wants for these slots.
std::vector<std::int64_t> mail_window_bytes(const std::vector<MailSlot>& slots, int ranks);

/// Why a window cannot have so many slots of a pair; empty: it can.
std::string why_no_mailbox(const std::vector<MailSlot>& slots);

/// `abort`: page-locked memory that the device reads; not 0 ends all waits. It outlives the mailbox.
/// REQUIRES: a window of mail_window_bytes(), for these alone, and why_no_mailbox() is empty.
std::unique_ptr<Mailbox> make_peer_mailbox(std::unique_ptr<PeerWindow> window, std::vector<MailSlot> slots,
                                           const int* abort);

}  // namespace braid::comm
