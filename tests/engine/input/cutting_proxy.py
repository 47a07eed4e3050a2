"""A proxy in front of a local store. Of its connections every third is cut within its answer, and every fourth waits a while
before it."""
import socket
import threading
import time


def pump(source, to, most):
    try:
        while most > 0:
            data = source.recv(min(most, 1 << 16))
            if not data:
                break
            to.sendall(data)
            most -= len(data)
    except OSError:
        pass
    for each in (source, to):
        try:
            each.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def serve(client, number, port):
    backend = socket.create_connection(("127.0.0.1", port))
    threading.Thread(target=pump, args=(client, backend, 1 << 60), daemon=True).start()
    if number % 4 == 3:
        time.sleep(0.3)
    pump(backend, client, 700 if number % 3 == 2 else 1 << 60)


def accept(listener, port):
    number = 0
    while True:
        client, _ = listener.accept()
        threading.Thread(target=serve, args=(client, number, port), daemon=True).start()
        number += 1


def start(port):
    """Result: its own port."""
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=accept, args=(listener, port), daemon=True).start()
    return listener.getsockname()[1]
