"""A local server of Google's storage API (gcp-storage-emulator), with files in a bucket, and a proxy in front of it that cuts and
delays.

    python3 gcs_server.py FILE...    prints the ports of the server and of the proxy, and ends with its standard input
"""
import json
import os
import sys
import urllib.parse
import urllib.request

import cutting_proxy
from gcp_storage_emulator.server import create_server

server = create_server("127.0.0.1", 0, in_memory=True)
server.start()
port = server._api._httpd.server_port


def post(path, body, kind):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=body, headers={"Content-Type": kind}, method="POST")
    urllib.request.urlopen(request, timeout=20).read()


post("/storage/v1/b?project=test", json.dumps({"name": "clicks"}).encode(), "application/json")
for file in sys.argv[1:]:
    name = urllib.parse.quote("data/" + os.path.basename(file), safe="")
    with open(file, "rb") as each:
        post(f"/upload/storage/v1/b/clicks/o?uploadType=media&name={name}", each.read(), "text/csv")
print(port, cutting_proxy.start(port), flush=True)
sys.stdin.read()
os._exit(0)
