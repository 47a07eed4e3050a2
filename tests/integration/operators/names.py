"""A cluster's DNS: A records of pods' names, NXDOMAIN for others, and answers that are kept for five seconds, as CoreDNS
does by default. So a name that was asked for too early stays unknown for a while, and one that has moved leads to where
it was. Names without the cluster's domain are completed by the resolvers, by SEARCH."""

import socket
import struct
import threading
import time

DOMAIN = "cluster.local"
SEARCH = f"default.svc.{DOMAIN} svc.{DOMAIN} {DOMAIN}"
KEPT_SECONDS = 5
A, AAAA = 1, 28
NO_SUCH_NAME = 3


def full(name):
    """pod.default.svc and pod.service, with their domain."""
    return f"{name}.{DOMAIN}" if name.endswith(".svc") else f"{name}.default.svc.{DOMAIN}"


def question_of(packet):
    """(name, type, where the question ends)."""
    labels, at = [], 12
    while packet[at]:
        labels.append(packet[at + 1:at + 1 + packet[at]].decode().lower())
        at += 1 + packet[at]
    return ".".join(labels), struct.unpack("!H", packet[at + 1:at + 3])[0], at + 5


class Server:
    def __init__(self, address):
        self.addresses = {}  # full name -> address
        self.kept = {}  # full name -> (address or None, until when that is said)
        self.asked, self.denied = 0, 0
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((address, 53))
        threading.Thread(target=self.serve, daemon=True).start()

    def publish(self, name, address):
        self.addresses[full(name)] = address

    def close(self):
        self.socket.close()

    def look_up(self, name):
        address, until = self.kept.get(name, (None, 0))
        if time.time() >= until:
            address = self.addresses.get(name)
            self.kept[name] = address, time.time() + KEPT_SECONDS
        return address

    def answer(self, packet):
        name, kind, end = question_of(packet)
        address = self.look_up(name)
        self.asked += 1
        self.denied += address is None
        records = b""
        if address and kind == A:
            records = b"\xc0\x0c" + struct.pack("!HHIH", A, 1, KEPT_SECONDS, 4) + socket.inet_aton(address)
        flags = 0x8580 | (0 if address else NO_SUCH_NAME)
        header = packet[:2] + struct.pack("!HHHHH", flags, 1, 1 if records else 0, 0, 0)
        return header + packet[12:end] + records

    def serve(self):
        while True:
            try:
                packet, sender = self.socket.recvfrom(4096)
            except OSError:
                return
            try:
                self.socket.sendto(self.answer(packet), sender)
            except (IndexError, struct.error, UnicodeDecodeError):
                pass  # not a question
            except OSError:
                return
