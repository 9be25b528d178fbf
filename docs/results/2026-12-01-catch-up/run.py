#!/usr/bin/env python3
"""One of three replicas lacks 500 MB: the writer sends them, or another replica does.

    run.py SABUL [ROUNDS]                  needs root, ip, tc and ssh-keygen

The writer and three servers are in network namespaces of their own behind one router. Everything that leaves the writer
passes a token bucket of 100 Mb/s, and the link of each replica has 1 Gb/s. The path has no delay and no loss. Two
replicas are in step, and the third one is empty. A round runs `sabul replicate` to all three with and without
--from-writer, in alternating order. One line of JSON for each run: bytes of frames that leave each machine, by the
counters of the kernel, and seconds until the command ends.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

FILES, FILE_BYTES = 5, 100_000_000
REPLICAS = ["r1", "r2", "r3"]
HOSTS = ["writer", *REPLICAS]
RATES = {"writer": "100mbit"}


def call(*words, **more):
    subprocess.run([str(word) for word in words], check=True, **more)


class Lab:
    def __init__(self, sabul, folder):
        self.sabul, self.folder = sabul, pathlib.Path(folder)
        self.spaces, self.servers, self.ports = {}, {}, {}
        self.env = {key: value for key, value in os.environ.items() if not key.startswith("SABUL")}
        self.env |= {"HOME": folder, "XDG_RUNTIME_DIR": folder, "XDG_STATE_HOME": f"{folder}/state"}
        for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "SSH_AUTH_SOCK"):
            self.env.pop(name, None)

    def space(self, name):
        process = subprocess.Popen(["unshare", "-n", "sleep", "infinity"])
        own = os.stat("/proc/self/ns/net").st_ino
        while os.stat(f"/proc/{process.pid}/ns/net").st_ino == own:
            time.sleep(0.01)
        self.spaces[name] = process
        call(*self.within(name), "ip", "link", "set", "lo", "up")

    def within(self, name):
        return ["nsenter", "-t", str(self.spaces[name].pid), "-n"]

    def network(self):
        self.space("router")
        call(*self.within("router"), "sysctl", "-qw", "net.ipv4.ip_forward=1")
        for number, name in enumerate(HOSTS):
            self.space(name)
            router, host = self.within("router"), self.within(name)
            call(*router, "ip", "link", "add", f"to{number}", "type", "veth", "peer", "name", "up0",
                 "netns", self.spaces[name].pid)
            call(*router, "ip", "addr", "add", f"10.78.{number}.1/24", "dev", f"to{number}")
            call(*router, "ip", "link", "set", f"to{number}", "up")
            call(*host, "ip", "addr", "add", f"10.78.{number}.2/24", "dev", "up0")
            call(*host, "ip", "link", "set", "up0", "up")
            call(*host, "ip", "route", "add", "default", "via", f"10.78.{number}.1")
            # Each packet passes the token bucket singly.
            call(*host, "ip", "link", "set", "up0", "gso_max_segs", "1")

    def limit(self):
        for name in HOSTS:
            call(*self.within(name), "tc", "qdisc", "replace", "dev", "up0", "root", "tbf", "rate",
                 RATES.get(name, "1gbit"), "burst", "64k", "latency", "50ms")

    def serve(self, name):
        root = self.folder / name
        root.mkdir()
        log = self.folder / f"{name}.log"
        with open(log, "w") as out:
            self.servers[name] = subprocess.Popen(
                [*self.within(name), self.sabul, "serve", "--root", root, "--listen",
                 f"10.78.{HOSTS.index(name)}.2:0", "--allow-rm", "--authorized-keys", self.folder / "key.pub",
                 "--state", self.folder / f"state-{name}", "--ticket-file", self.folder / f"ticket-{name}",
                 "--dial", "10.78.0.0/16", "--json-lines"],
                env=self.env, stdout=out, stderr=subprocess.STDOUT)
        while name not in self.ports:
            if self.servers[name].poll() is not None:
                sys.exit(f"the server {name} ended: {log.read_text()}")
            for line in log.read_text().splitlines():
                event = json.loads(line) if line.startswith("{") else {}
                if event.get("event") == "started":
                    self.ports[name] = event["address"]
            time.sleep(0.05)

    def replicate(self, names, *flags):
        places = [f"sabul://{self.ports[name]}/copy" for name in names]
        command = [*self.within("writer"), self.sabul, "replicate", "--identity", self.folder / "key", "--accept-new",
                   *flags, f"{self.folder}/source/", *places]
        return subprocess.run(command, env=self.env, check=True, capture_output=True, text=True).stderr

    def sent(self, name):
        words = [*self.within(name), "ip", "-s", "-j", "link", "show", "up0"]
        [link] = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
        return link["stats64"]["tx"]["bytes"]

    def is_copied(self):
        call("diff", "-r", self.folder / "source", self.folder / "r3/copy")

    def run(self, round_, flags):
        shutil.rmtree(self.folder / "r3/copy", ignore_errors=True)
        shutil.rmtree(self.folder / "state")
        shutil.copytree(self.folder / "state-before", self.folder / "state")
        before, begin = {name: self.sent(name) for name in HOSTS}, time.monotonic()
        text = self.replicate(REPLICAS, *flags)
        seconds = time.monotonic() - begin
        sent = {name: self.sent(name) - before[name] for name in HOSTS}
        self.is_copied()
        print(json.dumps({"round": round_, "flags": flags, "seconds": round(seconds, 3), "sent_bytes": sent,
                          "messages": text.splitlines()}), flush=True)

    def end(self):
        for process in [*self.servers.values(), *self.spaces.values()]:
            process.terminate()
            process.wait()


def main():
    sabul, rounds = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(sabul, folder)
        try:
            lab.network()
            call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", lab.folder / "key")
            source = lab.folder / "source"
            source.mkdir()
            for number in range(FILES):
                (source / f"f{number}").write_bytes(os.urandom(FILE_BYTES))
            for name in REPLICAS:
                lab.serve(name)
            lab.replicate(REPLICAS[:2])
            shutil.copytree(lab.folder / "state", lab.folder / "state-before")
            lab.limit()
            for round_ in range(rounds):
                both = [[], ["--from-writer"]]
                for flags in both if round_ % 2 == 0 else both[::-1]:
                    lab.run(round_, flags)
        finally:
            lab.end()


main()
