"""A local S3 server (moto), with files in a bucket, and a proxy in front of it that cuts and delays.

    python3 s3_server.py [--stay] FILE...    prints the ports of the server and of the proxy, and ends with its standard input;
                                             with --stay prints "ready" before them, and ends when it is killed
"""
import os
import signal
import sys

os.environ.update(AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="secret", AWS_DEFAULT_REGION="us-east-1")
import boto3
import cutting_proxy
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
_, port = server.get_host_and_port()
s3 = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}")
s3.create_bucket(Bucket="clicks")
files = [argument for argument in sys.argv[1:] if argument != "--stay"]
for file in files:
    s3.upload_file(file, "clicks", "data/" + os.path.basename(file))

proxy = cutting_proxy.start(port)
if "--stay" in sys.argv:
    print("ready", port, proxy, flush=True)
    signal.pause()
print(port, proxy, flush=True)
sys.stdin.read()
os._exit(0)
