"""A local S3 server (moto), with files in a bucket, and a proxy in front of it that cuts and delays.

    python3 s3_server.py FILE...    prints the ports of the server and of the proxy, and ends with its standard input

Of the proxy's connections every third is cut within its answer, and every fourth waits a while before it.
"""
import os
import socket
import sys
import threading
import time

os.environ.update(AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="secret", AWS_DEFAULT_REGION="us-east-1")
import boto3
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
_, port = server.get_host_and_port()
s3 = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}")
s3.create_bucket(Bucket="clicks")
for file in sys.argv[1:]:
    s3.upload_file(file, "clicks", "data/" + os.path.basename(file))

listener = socket.create_server(("127.0.0.1", 0))


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


def serve(client, number):
    backend = socket.create_connection(("127.0.0.1", port))
    threading.Thread(target=pump, args=(client, backend, 1 << 60), daemon=True).start()
    if number % 4 == 3:
        time.sleep(0.3)
    pump(backend, client, 700 if number % 3 == 2 else 1 << 60)


def accept():
    number = 0
    while True:
        client, _ = listener.accept()
        threading.Thread(target=serve, args=(client, number), daemon=True).start()
        number += 1


threading.Thread(target=accept, daemon=True).start()
print(port, listener.getsockname()[1], flush=True)
sys.stdin.read()
os._exit(0)
