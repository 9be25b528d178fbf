#!/usr/bin/env python3
"""Measures how many bytes `sabul sync` sends for a large file of which little changed.

    unshare -n tests/delta.py [MIB] [RUNS] [one_run|many_runs|pages|insertion]

Each kind of change, or the named kind, is pushed and pulled over loopback, in a network namespace of its own. The bytes
are those of the interface, with all headers, hashes and acknowledgements. SABUL is the program.
"""

import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

SABUL = os.path.abspath(os.environ.get("SABUL", "target/release/sabul"))
MIB = 1 << 20


def sent():
    """Bytes that the loopback interface of this namespace has sent."""
    lines = pathlib.Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split()[9]) for line in lines if line.split()[0] == "lo:")


def write(path, size, draw):
    with path.open("wb") as file:
        for _ in range(size // MIB):
            file.write(draw.randbytes(MIB))


def overwrite(path, offset, content):
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


def one_run(path, size, draw):
    """1 % of the file, as one run."""
    overwrite(path, draw.randrange(size * 98 // 100), draw.randbytes(size // 100))


def many_runs(path, size, draw):
    """1 % of the file, as 100 runs."""
    for _ in range(100):
        overwrite(path, draw.randrange(size * 98 // 100), draw.randbytes(size // 10_000))


def pages(path, size, draw):
    """1 % of the file, as random pages of 4 KiB."""
    for page in draw.sample(range(size // 4096), size // 4096 // 100):
        overwrite(path, page * 4096, draw.randbytes(4096))


def insertion(path, size, draw):
    """One megabyte in front of the file."""
    new = path.with_name("new")
    with new.open("wb") as file:
        file.write(draw.randbytes(10**6))
        with path.open("rb") as old:
            while content := old.read(8 * MIB):
                file.write(content)
    new.rename(path)


def equal(one, other):
    return subprocess.run(["cmp", one, other], check=False).returncode == 0


def sync(*arguments):
    start = time.monotonic()
    subprocess.run([SABUL, "sync", "-q", *arguments], check=True)
    return time.monotonic() - start


def measure(change, size, draw, folder):
    """Yields direction, share of the file that was sent, and seconds for each direction."""
    here, there = folder / "here", folder / "root" / "there"
    for directory in (here, there):
        directory.mkdir(parents=True, exist_ok=True)
    write(here / "file", size, draw)
    subprocess.run(["cp", "-p", here / "file", there / "file"], check=True)
    for direction in ("push", "pull"):
        changed = here if direction == "push" else there
        change(changed / "file", size, draw)
        before = sent()
        if direction == "push":
            seconds = sync(f"{here}/", "sabul:///there")
        else:
            seconds = sync("sabul:///there/", here)
        share = (sent() - before) / size
        assert equal(here / "file", there / "file"), f"{change.__name__}, {direction}: the files differ"
        yield direction, share, seconds


def main():
    size = int(sys.argv[1]) * MIB if len(sys.argv) > 1 else 64 * MIB
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    limits = {one_run: 0.02, many_runs: 0.02, pages: 0.05, insertion: 0.02 + 10**6 / size}
    failed = 0
    with tempfile.TemporaryDirectory(prefix="sabul-delta-", dir=os.environ.get("TMPDIR", "/tmp")) as name:
        folder = pathlib.Path(name)
        ticket = folder / "ticket"
        (folder / "root").mkdir()
        os.environ["SABUL_TICKET_FILE"] = str(ticket)
        serve = [SABUL, "serve", "--root", folder / "root", "--listen", "127.0.0.1:0", "--ticket-file", ticket]
        server = subprocess.Popen(serve, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for _ in range(200):
                if ticket.exists():
                    break
                time.sleep(0.05)
            only = sys.argv[3] if len(sys.argv) > 3 else None
            for change, limit in limits.items():
                if only not in (None, change.__name__):
                    continue
                found = {"push": [], "pull": []}
                for seed in range(runs):
                    for direction, share, seconds in measure(change, size, random.Random(seed), folder):
                        found[direction].append((share, seconds))
                for direction, pairs in found.items():
                    most = max(share for share, _ in pairs)
                    word = "ok  " if most <= limit else "FAIL"
                    failed += most > limit
                    shares = ", ".join(f"{share * 100:.2f}" for share, _ in pairs)
                    middle = statistics.median(seconds for _, seconds in pairs)
                    print(
                        f"{word} {change.__doc__} {direction}: {shares} % of {size // MIB} MiB sent, "
                        f"limit {limit * 100:.2f} %; {middle:.2f} s (median of {len(pairs)})",
                        flush=True,
                    )
        finally:
            server.terminate()
            server.wait()
    print(f"delta: {'FAILED' if failed else 'ok'}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
