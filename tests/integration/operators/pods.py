"""Pods without Kubernetes: network namespaces on a bridge, each with its own address, host name, /etc/hosts with that alone,
and /etc/resolv.conf as the kubelet writes it, of the cluster's DNS (names.py). The whole program runs in namespaces of
its own (inside()), so nothing is left behind."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import names

SUBNET = "10.77.0"


def inside():
    """Starts this program again in a network and mount namespace; ends it with 77 where that is not allowed."""
    if os.environ.get("IN_NAMESPACE"):
        return
    if subprocess.run(["unshare", "-nmu", "--fork", "sh", "-c", "ip link add br0 type bridge"], capture_output=True).returncode:
        print("skipped: no network namespaces here (root, unshare and iproute2 are needed)")
        sys.exit(77)
    os.environ["IN_NAMESPACE"] = "1"
    os.execvp("unshare", ["unshare", "-nmu", "--kill-child", "--fork", sys.executable, *sys.argv])


def sh(*command):
    subprocess.run(command, check=True, capture_output=True, timeout=30)


class Network:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.pods = []
        self.next = 2
        sh("ip", "link", "set", "lo", "up")
        sh("ip", "link", "add", "br0", "type", "bridge")
        sh("ip", "addr", "add", f"{SUBNET}.1/24", "dev", "br0")
        sh("ip", "link", "set", "br0", "up")
        self.dns = names.Server(f"{SUBNET}.1")
        (self.folder / "resolv.conf").write_text(f"search {names.SEARCH}\nnameserver {SUBNET}.1\noptions ndots:5\n")
        (self.folder / "nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files dns\n")

    def publish(self, name, address):
        """The name resolves in all pods from now on, where no cache says something else."""
        self.dns.publish(name, address)

    def pod(self, name):
        pod = Pod(self, name, self.next)
        self.next += 1
        self.pods.append(pod)
        return pod

    def close(self):
        for pod in self.pods:
            pod.close()
        self.dns.close()


class Pod:
    """A namespace that lives until close(), and the process in it."""

    def __init__(self, network, name, number):
        self.network, self.name = network, name
        self.address = f"{SUBNET}.{number}"
        self.process = None
        self.holder = subprocess.Popen(["unshare", "-nmu", "sleep", "100000"])
        link = f"veth{number}"
        deadline = time.time() + 20
        while os.readlink(f"/proc/{self.holder.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            if time.time() > deadline:
                raise SystemExit("FAIL no namespace")
            time.sleep(0.01)
        sh("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(self.holder.pid))
        sh("ip", "link", "set", link, "master", "br0", "up")
        for command in (["ip", "addr", "add", f"{self.address}/24", "dev", "eth0"], ["ip", "link", "set", "eth0", "up"],
                        ["ip", "link", "set", "lo", "up"], ["hostname", name]):
            sh(*self.enter(command))
        hosts = network.folder / f"hosts-{number}"
        hosts.write_text(f"127.0.0.1 localhost\n{self.address} {self.name}\n")
        for file, place in ((hosts, "hosts"), (network.folder / "resolv.conf", "resolv.conf"),
                            (network.folder / "nsswitch.conf", "nsswitch.conf")):
            sh(*self.enter(["mount", "--bind", str(file), f"/etc/{place}"]))

    def enter(self, command):
        return ["nsenter", "-t", str(self.holder.pid), "-n", "-m", "-u", *command]

    def start(self, command, variables):
        self.log = self.network.folder / f"{self.name}-{self.address}.log"
        # Nothing of this process's environment but what a container has.
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.network.folder), "HOSTNAME": self.name, **variables}
        self.process = subprocess.Popen(self.enter(command), env=environment, stdout=open(self.log, "w"),
                                        stderr=subprocess.STDOUT, cwd=self.network.folder)
        return self

    def text(self):
        return self.log.read_text()

    def wait(self, seconds=240):
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def says(self, text, seconds=120):
        end = time.time() + seconds
        while time.time() < end:
            if text in self.text():
                return True
            if self.process.poll() is not None:
                return text in self.text()
            time.sleep(0.05)
        return False

    def terminate(self):
        """As the kubelet: SIGTERM to the container's first process. nsenter has become the program."""
        self.process.send_signal(signal.SIGTERM)

    def kill(self):
        self.process.kill()
        self.process.wait(30)

    def listening(self):
        """Ports on which something in the pod listens beyond the loopback."""
        done = subprocess.run(self.enter(["cat", "/proc/net/tcp", "/proc/net/tcp6"]), capture_output=True, text=True)
        ports = set()
        for line in done.stdout.splitlines():
            fields = line.split()
            if len(fields) > 3 and fields[3] == "0A":
                address, port = fields[1].rsplit(":", 1)
                if address not in ("0100007F", "00000000000000000000000001000000"):
                    ports.add(int(port, 16))
        return ports

    def close(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait(30)
        self.holder.kill()
        self.holder.wait(30)
