#!/usr/bin/env python3
"""Three replicas in network namespaces, with kills, partitions, clock offsets and changes at every place.

    tests/partitions.py [RUNS [SEED]]      SABUL is the program; needs root, nft and nsenter

As tests/replicas.py, but each replica is a server in a network namespace of its own, and paths are cut: packets are
dropped both ways or one way, or the link is down. Some cuts are longer than the timeout of 5 s. A clock offset of a place
is an offset of up to two days in the modification times of the files that are written there, because the clock of this
machine stays as it is. Files of a replica change also during partitions.

Checked after each change: no file has a text that nobody wrote; no file is missing or replaced that neither the source
nor another program has touched since the replicas were in step. Checked at the end: as in tests/replicas.py.
One line of JSON for each run.
"""

import os
import shutil
import subprocess
import sys
import time

import replicas
from replicas import ROUNDS, SITES, wait

DAY_NS = 86_400_000_000_000
CUTS = ["both", "to the replica", "to the writer", "link down"]


def quiet(*words, text=None):
    subprocess.run(words, input=text, text=True, check=True, stdout=subprocess.DEVNULL)


class Run(replicas.Run):
    def __init__(self, folder, draw):
        super().__init__(folder, draw)
        self.servers, self.ports = [None] * SITES, [None] * SITES
        self.replicas = [self.folder / f"root{site}/copy" for site in range(SITES)]
        # The last place is the writer.
        self.offsets = [draw.randrange(-2 * DAY_NS, 2 * DAY_NS) for _ in range(SITES + 1)]
        self.cut, self.ends = [None] * SITES, [0.0] * SITES
        self.cuts = {kind: 0 for kind in CUTS}
        self.settled, self.spaces = [{} for _ in range(SITES)], []
        for site in range(SITES):
            space = subprocess.Popen(["unshare", "-n", "sleep", "infinity"])
            self.spaces.append(space)
            own = os.stat("/proc/self/ns/net").st_ino
            wait(lambda: os.stat(f"/proc/{space.pid}/ns/net").st_ino != own, "namespace")
            within = ["nsenter", "-t", str(space.pid), "-n"]
            quiet("ip", "link", "add", f"w{site}", "type", "veth", "peer", "name", "s0", "netns", str(space.pid))
            quiet("ip", "addr", "add", f"10.77.{site}.1/24", "dev", f"w{site}")
            quiet("ip", "link", "set", f"w{site}", "up")
            for words in ("ip addr add 10.77.{}.2/24 dev s0", "ip link set s0 up", "ip link set lo up"):
                quiet(*within, *words.format(site).split())

    def listen(self, site):
        return ["nsenter", "-t", str(self.spaces[site].pid), "-n"], f"10.77.{site}.2"

    def places(self):
        return [f"sabul://10.77.{site}.2:{port}/copy" for site, port in enumerate(self.ports)]

    def written(self, path, place):
        """Gives a file that was just written the time of a clock with an offset."""
        at = time.time_ns() + self.offsets[place]
        os.utime(path, ns=(at, at))

    def touched(self, *paths):
        for settled in self.settled:
            for path in paths:
                settled.pop(path, None)

    def change_source(self):
        before = {path: path.stat().st_ino for path in self.source.rglob("*") if path.is_file()}
        super().change_source()
        after = {path: path.stat().st_ino for path in self.source.rglob("*") if path.is_file()}
        both = before.keys() | after.keys()
        changed = [path for path in both if before.get(path) != after.get(path)]
        self.touched(*(path.relative_to(self.source) for path in changed))

    def change_replica(self):
        """Changes a file that the source has not touched, or adds one."""
        site = self.draw.randrange(SITES)
        self.foreign += 1
        text = self.text("replica")
        self.own[site].add(text)
        names = sorted(self.settled[site])
        if names and self.draw.random() < 0.7:
            name = self.draw.choice(names)
            del self.settled[site][name]
            path = self.replicas[site] / name
        else:
            path = self.replicas[site] / f"own{self.foreign}"
        path.parent.mkdir(parents=True, exist_ok=True)
        new = self.folder / "new"
        new.write_text(text)
        self.written(new, site)
        new.rename(path)

    def kill(self):
        self.kills += 1
        which = self.draw.randrange(SITES + 1)
        process = self.command if which == SITES else self.servers[which]
        process.kill()
        process.wait()
        time.sleep(self.draw.uniform(0, 0.5))
        self.start() if which == SITES else self.serve(which)

    def partition(self):
        site, kind = self.draw.randrange(SITES), self.draw.choice(CUTS)
        if self.cut[site]:
            return
        self.cuts[kind] += 1
        self.cut[site], self.ends[site] = kind, time.monotonic() + self.draw.choice([0.3, 1, 3, 9])
        self.apply()

    def heal(self, at_once=False):
        for site in range(SITES):
            if self.cut[site] and (at_once or time.monotonic() > self.ends[site]):
                self.cut[site] = None
                self.apply()

    def apply(self):
        """Makes the cuts of this moment."""
        chains = {"output": [], "input": []}
        for site, kind in enumerate(self.cut):
            quiet("ip", "link", "set", f"w{site}", "down" if kind == "link down" else "up")
            if kind in ("both", "to the replica"):
                chains["output"].append(f'oifname "w{site}" drop')
            if kind in ("both", "to the writer"):
                chains["input"].append(f'iifname "w{site}" drop')
        text = "table inet cut\ndelete table inet cut\ntable inet cut {\n"
        for hook, rules in chains.items():
            lines = "\n".join([f"type filter hook {hook} priority 0;", *rules])
            text += f"chain {hook} {{\n{lines}\n}}\n"
        quiet("nft", "-f", "-", text=text + "}\n")

    def settle(self):
        """Records which files no place has touched since all replicas were in step."""
        files = {path.relative_to(self.source): path.read_text() for path in self.source.rglob("*") if path.is_file()}
        for site, replica in enumerate(self.replicas):
            same = {name: text for name, text in files.items() if (replica / name).is_file()
                    and (replica / name).read_text() == text}
            self.settled[site] = same

    def check(self):
        self.check_texts()
        for replica, settled in zip(self.replicas, self.settled):
            for name, text in settled.items():
                path = replica / name
                assert path.is_file() and path.read_text() == text, f"{path} is missing or changed without a reason"

    def events(self):
        for _ in range(self.draw.randrange(3, 12)):
            self.change_source()
            if self.draw.random() < 0.3:
                self.partition()
            if self.draw.random() < 0.3:
                self.change_replica()
            if self.draw.random() < 0.3:
                self.kill()
            time.sleep(self.draw.uniform(0, 0.5))
            self.heal()
            self.check()

    def in_step_and_healed(self):
        self.heal()
        return not any(self.cut) and self.in_step()

    def run(self):
        self.apply()
        for site in range(SITES):
            self.serve(site)
        for _ in range(10):
            self.change_source()
        self.start()
        for _ in range(ROUNDS):
            wait(self.in_step_and_healed, "replicas in step")
            self.settle()
            self.events()
        wait(self.in_step_and_healed, "replicas in step at the end")
        result = self.finish()
        days = [round(offset / DAY_NS, 2) for offset in self.offsets]
        return result | {"cuts": self.cuts, "offsets_days": days}

    def new_file(self, path):
        self.written(path, SITES)

    def end(self):
        super().end()
        for site, space in enumerate(self.spaces):
            quiet("ip", "link", "delete", f"w{site}")
            space.kill()
            space.wait()


def main():
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    missing = [tool for tool in ("ssh-keygen", "nft", "ip", "nsenter", "unshare") if not shutil.which(tool)]
    if missing or os.geteuid() != 0:
        print(f"partitions.py: skipped: needs root and {', '.join(missing) or 'no other tool'}", file=sys.stderr)
        return
    if os.environ.get("SABUL_PARTITIONS") != "1":
        # All changes of the network are in a namespace of this script.
        os.environ["SABUL_PARTITIONS"] = "1"
        os.execvp("unshare", ["unshare", "-n", sys.executable, *sys.argv])
    quiet("ip", "link", "set", "lo", "up")
    replicas.run_all(Run, runs, seed)


if __name__ == "__main__":
    main()
