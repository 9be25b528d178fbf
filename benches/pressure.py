#!/usr/bin/env python3
"""Many clients at once against one `sabul serve` with little memory, on loopback.

    benches/pressure.py SABUL [--uploads N] [--downloads N] [--bytes SIZE] [--files N] [--memory SIZE] [--limit SECONDS]

Starts one server and all clients at once, waits for all of them, and prints one line of JSON: exit codes,
refusals, files whose hash is wrong, the time in line, the goodput of the slowest client over the mean, and
the peak resident memory of the server. The goodput of a client is counted from its turn to its end; its
time in line is counted apart. All processes are children of this one and are ended by their id.
"""

import argparse
import collections
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SOURCES_MAX_BYTES = 1 << 30


def size(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def digest(path):
    if path.is_dir():
        return [(file.name, digest(file)) for file in sorted(path.iterdir())]
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def status(pid, key):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1])
    return 0


class Watch:
    """The most that was seen of a process."""

    def __init__(self, pid):
        self.pid, self.threads, self.files = pid, 0, 0

    def look(self):
        self.threads = max(self.threads, status(self.pid, "Threads"))
        self.files = max(self.files, len(os.listdir(f"/proc/{self.pid}/fd")))


def start_server(args, home, root):
    ticket = home / "ticket"
    command = [args.sabul, "serve", "--root", root, "--listen", "127.0.0.1:0", "--memory", args.memory]
    command += ["--ticket-file", ticket, "--json-lines"]
    log = open(home / "server.log", "wb")
    server = subprocess.Popen(command, stdout=log, stderr=log, env=environment(home), preexec_fn=args.limits)
    deadline = time.monotonic() + 20
    while not ticket.exists():
        if server.poll() is not None or time.monotonic() > deadline:
            sys.exit("the server did not start: " + (home / "server.log").read_text())
        time.sleep(0.05)
    return server, ticket


def environment(home):
    return {**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(home), "XDG_RUNTIME_DIR": str(home)}


def write_random(path, length):
    with open(path, "wb") as file:
        while length > 0:
            file.write(os.urandom(min(length, 1 << 20)))
            length -= 1 << 20


def make_sources(args, home):
    """Random files or directories of equal files, as many different ones as fit."""
    count = max(1, min(max(args.uploads, args.downloads), SOURCES_MAX_BYTES // args.bytes))
    folder = home / "root" / "sources"
    folder.mkdir(parents=True)
    for number in range(count):
        if args.files is None:
            write_random(folder / str(number), args.bytes)
            continue
        (folder / str(number)).mkdir()
        for file in range(args.files):
            write_random(folder / str(number) / str(file), args.bytes // args.files)
    return folder, count


def start_client(args, home, ticket, source, kind, number, barrier):
    """A client that waits until the writing end of `barrier` is closed."""
    if kind == "up":
        places = [source, f"sabul:///up-{number}"]
        arrived = home / "root" / f"up-{number}"
    else:
        arrived = home / f"down-{number}"
        places = [f"sabul:///sources/{source.name}", arrived]
    recursive = [] if args.files is None else ["-r"]
    command = [args.sabul, "cp", "--json-lines", *recursive, "--ticket", ticket, *args.options.split(), *places]
    out = open(home / f"{kind}-{number}.out", "wb")
    err = open(home / f"{kind}-{number}.err", "wb")
    command = ["sh", "-c", 'read -r _; exec "$@" </dev/null', "sh", *command]
    process = subprocess.Popen(command, stdin=barrier, stdout=out, stderr=err, env=environment(home))
    out.close()
    err.close()
    client = {"process": process, "kind": kind, "number": number, "source": source, "arrived": arrived}
    return client


def collect(home, client, digests, length, began):
    lines = (home / f"{client['kind']}-{client['number']}.out").read_text().splitlines()
    events = [json.loads(line) for line in lines if line]
    done = next((event for event in events if event["event"] == "done"), {})
    code = client["process"].returncode
    arrived = client["arrived"]
    is_right = arrived.exists() and digest(arrived) == digests[client["source"]]
    waited = done.get("waited_s", 0.0)
    moving = max(done.get("seconds", 0.0) - waited, 1e-6)
    errors = [error["message"] for error in done.get("errors", [])]
    errors += [] if done else [(home / f"{client['kind']}-{client['number']}.err").read_text()[:200]]
    places = [event["place"] for event in events if event["event"] == "waiting"]
    return {
        "code": code,
        "is_right": is_right,
        "wall_s": client["ended"] - began,
        "waited_s": waited,
        "door_s": max(0.0, client["ended"] - began - done.get("seconds", 0.0)),
        "bps": length * 8 / moving,
        "retransmitted": done.get("packets_retransmitted", 0),
        "packets": done.get("packets_sent", 0),
        "error": errors[0][:160] if errors else None,
        "first_place": places[0] if places else None,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sabul")
    parser.add_argument("--uploads", type=int, default=0)
    parser.add_argument("--downloads", type=int, default=0)
    parser.add_argument("--bytes", type=size, default=size("2M"))
    parser.add_argument("--files", type=int, help="each client copies a directory of so many equal files")
    parser.add_argument("--memory", default="1GiB")
    parser.add_argument("--limit", type=float, default=300)
    parser.add_argument("--open-files", type=int, help="limit of open files of the server")
    parser.add_argument("--options", default="", help="more options for every client")
    parser.add_argument("--at", help="folder for everything that is written")
    args = parser.parse_args()

    def limits():
        if args.open_files:
            import resource

            resource.setrlimit(resource.RLIMIT_NOFILE, (args.open_files, args.open_files))

    args.limits = limits
    args.sabul = os.path.abspath(args.sabul)
    home = pathlib.Path(tempfile.mkdtemp(prefix="sabul-pressure-", dir=args.at))
    (home / "root").mkdir()
    clients, server = [], None
    try:
        sources, count = make_sources(args, home)
        digests = {path: digest(path) for path in sources.iterdir()}
        server, ticket = start_server(args, home, home / "root")
        watch = Watch(server.pid)
        idle_kib = status(server.pid, "VmHWM")
        barrier, gate = os.pipe()
        os.set_inheritable(gate, False)
        wanted = [("up", number) for number in range(args.uploads)]
        wanted += [("down", number) for number in range(args.downloads)]
        for kind, number in wanted:
            clients.append(start_client(args, home, ticket, sources / str(number % count), kind, number, barrier))
        began = time.monotonic()
        os.close(gate)
        running = list(clients)
        while running and time.monotonic() < began + args.limit:
            for client in running:
                if client["process"].poll() is not None:
                    client["ended"] = time.monotonic()
            running = [client for client in running if client["process"].returncode is None]
            watch.look()
            time.sleep(0.05)
        total_s = time.monotonic() - began
        for client in running:
            client["process"].kill()
            client["process"].wait()
            client["ended"] = time.monotonic()
        peak_kib = status(server.pid, "VmHWM")
        results = [collect(home, client, digests, args.bytes, began) for client in clients]
        report(args, results, len(running), watch, total_s, idle_kib, peak_kib)
    finally:
        for process in [client["process"] for client in clients] + ([server] if server else []):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        shutil.rmtree(home)


def report(args, results, unfinished, watch, total_s, idle_kib, peak_kib):
    done = [result for result in results if result["code"] == 0]
    rates = sorted(result["bps"] for result in done) or [0.0]
    mean = sum(rates) / len(rates)
    waits = sorted(result["waited_s"] for result in done) or [0.0]
    errors = collections.Counter(result["error"] for result in results if result["code"] != 0)
    budget_kib = parse_memory(args.memory) >> 10
    packets = sum(result["packets"] for result in results)
    print(json.dumps({
        "uploads": args.uploads,
        "downloads": args.downloads,
        "bytes": args.bytes,
        "files": args.files,
        "memory": args.memory,
        "ended_well": len(done),
        "unfinished": unfinished,
        "wrong_files": sum(1 for result in done if not result["is_right"]),
        "codes": dict(collections.Counter(str(result["code"]) for result in results)),
        "errors": dict(errors.most_common(4)),
        "total_s": round(total_s, 2),
        "goodput_mbps": round(len(done) * args.bytes * 8 / total_s / 1e6, 1),
        "mean_mbps": round(mean / 1e6, 2),
        "slowest_mbps": round(rates[0] / 1e6, 2),
        "slowest_over_mean": round(rates[0] / mean, 3) if mean else 0,
        "below_half_of_mean": sum(1 for rate in rates if rate < mean / 2),
        "in_line": sum(1 for result in results if result["first_place"] is not None),
        "waited_s_mean": round(sum(waits) / len(waits), 2),
        "waited_s_max": round(waits[-1], 2),
        "door_s_max": round(max(result["door_s"] for result in results), 2),
        "retransmitted_share": round(sum(result["retransmitted"] for result in results) / max(packets, 1), 4),
        "server_idle_mib": idle_kib >> 10,
        "server_peak_mib": peak_kib >> 10,
        "peak_over_budget": round(peak_kib / budget_kib, 3),
        "server_threads_max": watch.threads,
        "server_files_max": watch.files,
    }))


def parse_memory(text):
    units = {"KiB": 10, "MiB": 20, "GiB": 30, "K": 10, "M": 20, "G": 30}
    for unit, shift in units.items():
        if text.endswith(unit):
            return int(text[: -len(unit)]) << shift
    return int(text)


main()
