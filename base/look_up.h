// The addresses behind a host's name, within a deadline: getaddrinfo() has none of its own, and takes half a
// minute where a name server does not answer. Thread rule: safe from any thread.
#pragma once

#include <netdb.h>

#include <memory>
#include <string>

#include "base/wait_context.h"

namespace braid {

using AddressList = std::shared_ptr<const addrinfo>;

/// Of TCP. Null with a reason when the name cannot be looked up: "Name or service not known", or that the
/// name server has not answered before the deadline or a stop. Numbers are never asked for.
AddressList look_up(const std::string& host, const std::string& port, const WaitContext& wait,
                    std::string& reason);

/// The same of a name of this machine, to listen at. A name server has 30 seconds to answer.
AddressList own_addresses(const std::string& host, const std::string& port, std::string& reason);

}  // namespace braid
