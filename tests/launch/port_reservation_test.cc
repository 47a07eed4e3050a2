// Reserved ports are free for the server they are meant for and for nobody who asks for any port.
#include "launch/port_reservation.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <set>

namespace braid::launch {
namespace {

/// Binds and listens at 127.0.0.1:`port` with one of the options set (0: none).
bool can_listen(int port, int option) {
  const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (option != 0) ::setsockopt(socket.get(), SOL_SOCKET, option, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
         ::listen(socket.get(), 8) == 0;
}

int port_of(const std::string& address) { return std::stoi(address.substr(address.rfind(':') + 1)); }

TEST(PortReservationTest, PortsDifferAlsoBetweenReservations) {
  const PortReservation first(50);
  const PortReservation second(50);
  std::set<std::string> addresses(first.addresses().begin(), first.addresses().end());
  addresses.insert(second.addresses().begin(), second.addresses().end());
  EXPECT_EQ(addresses.size(), 100u);
}

TEST(PortReservationTest, ServersThatReuseAddressesMayListen) {
  const PortReservation ports(1);
  const int port = port_of(ports.addresses()[0]);
  EXPECT_TRUE(can_listen(port, SO_REUSEADDR));
  EXPECT_TRUE(can_listen(port, SO_REUSEPORT));
  EXPECT_FALSE(can_listen(port, 0));
}

}  // namespace
}  // namespace braid::launch
