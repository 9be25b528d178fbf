#!/usr/bin/env python3
"""Striped copies by pairs of hosts: SABUL=target/release/sabul ./run.py [ROUNDS] [two|four|lost]. Needs root, ip, cc.

Each pair of hosts is two namespaces with an independent emulator (tests/emulator/emulator.c) between them. All hosts of a
side have the same file system. A script in place of ssh enters the namespace of a host. Each line of output is one copy
of a file, as JSON: by one pair alone (plain cp), by all pairs (--stripe), or with a pair that is cut in mid-copy.
"""
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SABUL = os.path.abspath(os.environ.get("SABUL") or ROOT / "target/release/sabul")
# Mb/s, RTT in ms, queue in BDP.
TWO = [(100, 40, 1), (100, 40, 1)]
FOUR = [(10, 200, 1), (20, 80, 1), (40, 30, 1), (80, 10, 1)]
SECONDS = 40


def call(*words):
    subprocess.run([str(word) for word in words], check=True, timeout=20)


class Hosts:
    def __init__(self, work, paths, seed):
        self.work, self.paths, self.seed = Path(work), paths, seed
        self.names = [[f"pairs-{os.getpid()}-{side}{index}" for side in "ab"] for index in range(len(paths))]
        self.emulators = []

    def __enter__(self):
        try:
            self.set_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def set_up(self):
        for index, (pair, (rate, rtt, queue)) in enumerate(zip(self.names, self.paths)):
            for side, name in enumerate(pair):
                own, other = (f"10.81.{index}.{1 + side}", f"10.81.{index}.{2 - side}")
                call("ip", "netns", "add", name)
                call("ip", "-n", name, "link", "set", "lo", "up")
                call("ip", "-n", name, "tuntap", "add", "dev", "emu", "mode", "tun")
                call("ip", "-n", name, "link", "set", "emu", "mtu", 1500, "txqueuelen", 20000)
                call("ip", "-n", name, "addr", "add", own, "peer", other, "dev", "emu")
                call("ip", "-n", name, "link", "set", "emu", "up")
            packets = max(10, round(rate * 1e6 * rtt / 1e3 / 8 / 1500 * queue))
            way = f"rate={rate * 1e6:.0f},delay_us={rtt / 2 * 1e3:.0f},packets={packets}"
            emulator = subprocess.Popen(
                [f"{self.work}/emulator", "--left", f"/run/netns/{pair[0]}", "--right", f"/run/netns/{pair[1]}", "--device", "emu",
                 "--fifo", "10", "--seconds", "600", "--forward", f"{way},seed={self.seed}", "--back", f"{way},seed={self.seed + 1}"],
                stdout=subprocess.PIPE, text=True)
            self.emulators.append(emulator)
            if json.loads(emulator.stdout.readline() or "{}").get("event") != "ready":
                raise RuntimeError("the emulator did not start")
        hosts = {f"{side}{index}": (self.names[index][at], f"10.81.{index}.{1 + at}")
                 for index in range(len(self.paths)) for at, side in enumerate("ab")}
        (self.work / "bin").mkdir(exist_ok=True)
        link = self.work / "bin" / "sabul"
        link.unlink(missing_ok=True)
        link.symlink_to(SABUL)
        ssh = self.work / "ssh"
        ssh.write_text(f"""#!/usr/bin/env python3
import os, sys
words = sys.argv[1:]
host, command = words[words.index("--") + 1:][:2] if "--" in words else (words[-1], "")
namespace, address = {hosts!r}[host]
if "-G" in words:
    print("hostname", address)
    sys.exit(0)
home = "{self.work}/" + host[0]
os.chdir(home)
os.environ |= {{"HOME": home, "SSH_CONNECTION": f"10.81.99.9 9 {{address}} 22", "PATH": "{self.work}/bin:" + os.environ["PATH"]}}
os.execvp("ip", ["ip", "netns", "exec", namespace, "sh", "-c", "exec " + command])
""")
        ssh.chmod(0o755)
        (self.work / "pairs").write_text("".join(f"a{index} b{index}\n" for index in range(len(self.paths))))

    def copy(self, *words, to, during=lambda: None):
        target = self.work / "b" / "copy"
        target.unlink(missing_ok=True)
        environment = os.environ | {"SABUL_SSH": str(self.work / "ssh"), "XDG_CACHE_HOME": str(self.work / "cache")}
        begin = time.monotonic()
        process = subprocess.Popen([SABUL, "cp", "--fresh", "--json", *words, f"a{to}:file", f"b{to}:copy"], env=environment,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        during()
        out, errors = process.communicate(timeout=300)
        seconds = time.monotonic() - begin
        same = target.exists() and subprocess.run(["cmp", "-s", self.work / "a" / "file", target]).returncode == 0
        parts = len(list((self.work / "b").glob("*.sabul-part")))
        size = (self.work / "a" / "file").stat().st_size
        return {"exit": process.returncode, "same": same, "parts": parts, "seconds": round(seconds, 2),
                "mbps": round(size * 8 / seconds / 1e6, 1), "striped_bytes": json.loads(out or "{}").get("striped_bytes"),
                "errors": errors.splitlines()[-3:] if process.returncode or "go on" in errors else []}

    def cut(self, index):
        for name in self.names[index]:
            call("ip", "-n", name, "link", "set", "emu", "down")

    def __exit__(self, *_):
        for emulator in self.emulators:
            emulator.terminate()
            emulator.wait()
        for name in sum(self.names, []):
            pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
            for pid in pids:
                os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def size_for(rate):
    return int(rate * 1e6 / 8 * SECONDS) // (1 << 20) << 20


def fill(work, size):
    for side in "ab":
        shutil.rmtree(f"{work}/{side}", ignore_errors=True)
        os.mkdir(f"{work}/{side}")
    with open(f"{work}/a/file", "wb") as file:
        for _ in range(size >> 20):
            file.write(os.urandom(1 << 20))


def measure(work, name, paths, turn):
    alone = []
    for index, (rate, _, _) in enumerate(paths):
        fill(work, size_for(rate))
        with Hosts(work, paths, turn) as hosts:
            row = hosts.copy(to=index)
            alone.append(row["mbps"])
            yield {"part": name, "turn": turn, "who": f"pair {index} alone", **row}
    fill(work, size_for(sum(rate for rate, _, _ in paths)))
    with Hosts(work, paths, turn) as hosts:
        row = hosts.copy("--stripe", f"{work}/pairs", to=0)
        yield {"part": name, "turn": turn, "who": "striped", **row, "share": round(row["mbps"] / sum(alone), 3)}


def lost(work, turn):
    fill(work, size_for(200))
    with Hosts(work, TWO, turn) as hosts:
        def during():
            time.sleep(8)
            hosts.cut(1)
        yield {"part": "lost", "turn": turn, "who": "path of pair 1 cut after 8 s", **hosts.copy("--stripe", f"{work}/pairs", "--timeout", "5", to=0, during=during)}


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    parts = sys.argv[2:] or ["two", "four", "lost"]
    shares = {}
    with tempfile.TemporaryDirectory(prefix="pairs-") as work:
        subprocess.run(["cc", "-O2", "-pthread", "-o", f"{work}/emulator", ROOT / "tests/emulator/emulator.c"], check=True, timeout=120)
        for turn in range(1, rounds + 1):
            for part in parts:
                rows = lost(work, turn) if part == "lost" else measure(work, part, {"two": TWO, "four": FOUR}[part], turn)
                for row in rows:
                    print(json.dumps(row), flush=True)
                    if "share" in row:
                        shares.setdefault(part, []).append(row["share"])
    for part, values in shares.items():
        print(f"# {part}: share of the sum of the pairs alone: {min(values)}, {statistics.median(values)}, {max(values)}", flush=True)


if __name__ == "__main__":
    main()
