#!/usr/bin/env python3
"""Compares `sabul sync` with rsync: drawn trees, drawn changes, and rsync's dry run as the judge.

    tests/sync.py [SEEDS] [ENTRIES]

For each seed, a tree is drawn, copied, changed in every way, and copied again, by push and by pull in turn. Afterwards
`rsync -n -a --delete -i` must report no difference. Some copies are killed and repeated. SABUL is the program.
"""

import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

SABUL = os.environ.get("SABUL", "target/release/sabul")
RSYNC = ["rsync", "-n", "-a", "--delete", "-i"]


def name(draw):
    letters = "abcdefgh-._ éß[]{}*?\\'\"" + "0123456789"
    word = "".join(draw.choice(letters) for _ in range(draw.randint(1, 12)))
    return "x" if word in (".", "..") or word.startswith("-") else word


def write(path, draw):
    size = draw.choice([0, 1, 100, 5000, 70_000, 300_000])
    if draw.random() < 0.04:
        # Large enough for a delta.
        size = draw.randint(8 << 20, 10 << 20)
    path.write_bytes(draw.randbytes(size))
    if draw.random() < 0.5:
        # Whole seconds, as some file systems keep.
        seconds = draw.randint(1_000_000_000, 1_700_000_000)
        os.utime(path, (seconds, seconds))


def entries(root):
    return sorted(path for path in root.rglob("*"))


def add(root, draw, count):
    folders = [root] + [path for path in entries(root) if path.is_dir() and not path.is_symlink()]
    for _ in range(count):
        path = draw.choice(folders) / name(draw)
        if os.path.lexists(path):
            continue
        kind = draw.random()
        if kind < 0.2:
            path.mkdir()
            folders.append(path)
        elif kind < 0.3:
            path.symlink_to(draw.choice(["x", "../x", "/nowhere", "."]))
        else:
            write(path, draw)


def change(root, draw, count):
    """Changes entries: content, time, mode, link, removal, and renaming of files and directories."""
    for _ in range(count):
        everything = [path for path in entries(root) if os.path.lexists(path)]
        if not everything:
            return
        path = draw.choice(everything)
        kind = draw.randint(0, 7)
        if path.is_symlink():
            path.unlink()
            if kind < 3:
                path.symlink_to("changed" + str(kind))
        elif kind == 0 and path.is_file():
            write(path, draw)
        elif kind == 1:
            os.utime(path, ns=(0, draw.randint(1, 1_700_000_000) * 10**9 + draw.randint(0, 10**9 - 1)))
        elif kind == 2:
            path.chmod(draw.choice([0o600, 0o644, 0o755]) if path.is_file() else 0o750)
        elif kind == 3 and path.is_file():
            with path.open("ab") as file:
                file.write(b"more")
            if draw.random() < 0.3:
                path.write_bytes(b"in front" + path.read_bytes())
        elif kind == 4:
            new = path.with_name(name(draw))
            if not os.path.lexists(new):
                path.rename(new)
        elif kind == 5:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        elif kind == 6:
            # A directory becomes a file, or the reverse.
            if path.is_dir():
                shutil.rmtree(path)
                write(path, draw)
            else:
                path.unlink()
                path.mkdir()
                write(path / name(draw), draw)
        elif path.is_file():
            # The same size and another content; of a large file only pages, or a front that moved to the end.
            content = path.read_bytes()
            if len(content) < 1 << 20:
                content = draw.randbytes(len(content))
            elif draw.random() < 0.5:
                content = content[12_345:] + content[:12_345]
            else:
                content = bytearray(content)
                for _ in range(5):
                    content[draw.randrange(len(content))] ^= 1
            path.write_bytes(content)


def run(command, timeout=120):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout, check=False)


class Case:
    def __init__(self, work, seed, count):
        self.draw = random.Random(seed)
        self.source, self.served = work / "source", work / "served"
        self.ticket = work / "ticket"
        self.source.mkdir()
        self.served.mkdir()
        add(self.source, self.draw, count)
        self.port = 20_000 + os.getpid() % 20_000

    def serve(self):
        command = [SABUL, "serve", "--root", self.served, "--listen", "127.0.0.1:0", "--allow-rm", "--ticket-file",
                   self.ticket]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while not self.ticket.exists():
            time.sleep(0.02)
        return server

    def sync(self, source, destination, kill=False):
        command = [SABUL, "sync", "-a", "--delete", "--delete-limit", "100000", "--ticket", self.ticket, source, destination]
        if kill:
            running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(self.draw.random() * 0.25)
            running.kill()
            running.wait()
            # The server notices the end of the connection.
            time.sleep(0.3)
        done = run(command)
        assert done.returncode == 0, (done.returncode, done.stdout.decode())
        return done.stdout.decode().strip().splitlines()[-1]

    def judge(self, source, destination):
        done = run([*RSYNC, f"{source}/", f"{destination}/"])
        assert done.returncode == 0 and done.stdout == b"", done.stdout.decode()

    def rounds(self, count):
        pulled = self.source.with_name("pulled")
        for at in range(3):
            kill = self.draw.random() < 0.5
            line = self.sync(f"{self.source}/", "sabul:///copy", kill)
            self.judge(self.source, self.served / "copy")
            self.sync("sabul:///copy/", f"{pulled}", kill)
            self.judge(self.source, pulled)
            print(f"  round {at}: {line}")
            line = self.sync(f"{self.source}/", "sabul:///copy")
            assert line.startswith("nothing to copy"), line
            change(self.source, self.draw, max(count // 4, 1))
            add(self.source, self.draw, max(count // 10, 1))


def main():
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 150
    if not shutil.which("rsync"):
        print("tests/sync.py: skipped: rsync is not installed")
        return
    for seed in range(1, seeds + 1):
        work = pathlib.Path(tempfile.mkdtemp(prefix="sabul-sync-"))
        print(f"seed {seed}")
        case = Case(work, seed, count)
        server = case.serve()
        try:
            case.rounds(count)
        finally:
            server.kill()
            server.wait()
        shutil.rmtree(work)
    print(f"{seeds} seeds: rsync finds no difference after each sync")


if __name__ == "__main__":
    main()
