// Addresses of the data plane: "host:port", "[v6]:port" or "unix:/path".
#pragma once

#include <string>

namespace braid::comm {

struct Address {
  bool is_unix = false;
  std::string host;  // or the path
  std::string port;
};

/// Throws: InvalidArgument naming the text and what is wrong with it.
Address parse_address(const std::string& text);

}  // namespace braid::comm
