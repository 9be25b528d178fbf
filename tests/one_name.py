#!/usr/bin/env python3
"""Two servers behind one name with the same key, tickets and files: a client uses the one that answers.

    tests/one_name.py                                   needs user namespaces, or root

Runs in namespaces of its own, where the name `site.test` has the addresses 127.0.0.2 and 127.0.0.3. A `sabul serve` on each
has a copy of the same state directory, and both serve the same directory. The client trusts the name once. Then a key and a
named ticket log in at either server while the other one is dead, and a copy whose server is killed continues at
the other one with the data that is there. SABUL is the program.
"""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

SABUL = os.path.abspath(os.environ.get("SABUL", "target/debug/sabul"))
NAME, ADDRESSES, PORT = "site.test", ("127.0.0.2", "127.0.0.3"), 4850
SIZE, RATE = 30_000_000, "40M"


def enter():
    """Starts this script again in namespaces of its own."""
    flags = ["--mount", "--net"] + ([] if os.geteuid() == 0 else ["--user", "--map-root-user"])
    os.execvp("unshare", ["unshare", *flags, sys.executable, os.path.abspath(__file__), "inside"])


class Site:
    def __init__(self, work):
        self.work, self.servers = work, [None, None]
        self.root, self.log = work / "root", open(work / "log", "w", encoding="utf-8")
        self.root.mkdir()
        self.environment = dict(os.environ, HOME=str(work / "home"), XDG_RUNTIME_DIR=str(work), XDG_CONFIG_HOME="",
                                XDG_CACHE_HOME=str(work / "cache"), XDG_STATE_HOME=str(work / "lasting"))
        (work / "home" / ".ssh").mkdir(parents=True)
        key = work / "home" / ".ssh" / "id_ed25519"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        for name in ("SSH_AUTH_SOCK", "SABUL_TICKET_FILE"):
            self.environment.pop(name, None)
        # The first server makes the key of the site.
        (work / "state0").mkdir(mode=0o700)
        shutil.copy(f"{key}.pub", work / "state0" / "authorized_keys")
        self.start(0)
        fingerprint = self.run("key", "fingerprint", "--state", "state0").split()[0]
        self.run("ticket", "create", "guest", "--state", "state0", "-o", "guest.ticket")
        shutil.copytree(work / "state0", work / "state1")
        self.run("key", "trust", NAME, fingerprint)
        self.start(1)

    def start(self, number):
        words = ["serve", "--root", "root", "--listen", f"{ADDRESSES[number]}:{PORT}", "--advertise", f"{NAME}:{PORT}",
                 "--state", f"state{number}"]
        self.servers[number] = subprocess.Popen([SABUL, *words], env=self.environment, cwd=self.work, stdout=self.log,
                                                stderr=self.log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while not self.listens(ADDRESSES[number]):
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.05)

    def listens(self, address):
        return f"{address}:{PORT}" in subprocess.run(["ss", "-Hltn"], check=True, stdout=subprocess.PIPE).stdout.decode()

    def kill(self, number):
        self.servers[number].kill()
        self.servers[number].wait()

    def command(self, *words):
        return subprocess.Popen([SABUL, *words], env=self.environment, cwd=self.work, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=self.log)

    def run(self, *words):
        command = self.command(*words)
        output = command.communicate(timeout=120)[0].decode()
        assert command.returncode == 0, f"{words}: exit code {command.returncode}"
        return output


def copy(site, name, *flags):
    """Copies a new small file, and compares it."""
    content = os.urandom(30_000)
    (site.work / name).write_bytes(content)
    site.run("cp", *flags, name, f"sabul://{NAME}:{PORT}/" if not flags else "sabul:///")
    assert (site.root / name).read_bytes() == content, f"{name} differs"


def change_servers(site):
    """Kills the server of a running copy. Returns its number, the time of the copy, and bytes to the other server."""
    (site.work / "big").write_bytes(os.urandom(SIZE))
    running = site.command("cp", "--json-lines", "--bwlimit", RATE, "--retry", "60s", "big", f"sabul://{NAME}:{PORT}/")
    # Data that a power cut of the server would leave.
    for line in running.stdout:
        if json.loads(line).get("durable_bytes", 0) > SIZE // 4:
            break
    connections = subprocess.run(["ss", "-Htn", "state", "established", f"sport = :{PORT}"], check=True,
                                 stdout=subprocess.PIPE).stdout.decode()
    number = next(number for number, address in enumerate(ADDRESSES) if f"{address}:{PORT}" in connections)
    site.kill(number)
    document = json.loads(running.communicate(timeout=120)[0].splitlines()[-1])
    assert running.returncode == 0, document
    # The last session sent these packets. A datagram has at most `mtu` bytes.
    sent = document["packets_sent"] * document["mtu"]
    assert document["reconnects"] == 1 and sent < SIZE, f"the copy began again: {document}"
    digests = [hashlib.sha256((folder / "big").read_bytes()).digest() for folder in (site.work, site.root)]
    assert digests[0] == digests[1], "the copy differs"
    return number, document["seconds"], sent


def main():
    if sys.argv[1:] != ["inside"]:
        enter()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    work = pathlib.Path(tempfile.mkdtemp(prefix="sabul-name-")).resolve()
    (work / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"{it} {NAME}\n" for it in ADDRESSES), encoding="utf-8")
    subprocess.run(["mount", "--bind", work / "hosts", "/etc/hosts"], check=True)
    site = Site(work)
    try:
        copy(site, "both")
        for number in (0, 1):
            site.kill(number)
            copy(site, f"key{number}")
            copy(site, f"ticket{number}", "--ticket", "guest.ticket")
            site.start(number)
        number, seconds, sent = change_servers(site)
    finally:
        for server in site.servers:
            server.kill()
            server.wait()
    print(f"key and ticket log in at each of two servers while the other one is dead; a copy of {SIZE // 10**6} MB whose "
          f"server {ADDRESSES[number]} was killed ended at the other one after {seconds:.1f} s, which got at most "
          f"{sent / 1e6:.1f} MB")
    site.log.close()
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
