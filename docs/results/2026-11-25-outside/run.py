#!/usr/bin/env python3
"""Measures sabul and the kernel's TCP over an emulator that shares no code with sabul (tests/emulator/emulator.c).

    run.py check|start|crowd|beside|cp [--rounds N] [--raw FILE] [more: run.py PART --help]
    run.py table FILE...                   the tables of raw files again

SABUL=PATH names the program (target/release/sabul by itself). It needs root, ip, cc; `check` needs ping and iperf3 too.

Each run has two network namespaces of its own with the emulator between them. Senders take turns within a round.
A line of JSON for each run goes to the raw file, tables go to standard output. A run is invalid
where the emulator was late, where a device dropped packets, or where the buffer of a UDP socket overflowed.
"""
import argparse
import filecmp
import json
import os
import selectors
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve()
ROOT = HERE.parents[3]
SABUL = os.path.abspath(os.environ.get("SABUL") or ROOT / "target/release/sabul")
LEFT, RIGHT, PORT = "10.78.0.1", "10.78.0.2", 4850
PACKET = 1500
MIB = 1 << 20
# Largest buffers of a TCP socket in the namespaces: over twice what path and queue hold, with the kernel's overhead.
TCP_BUFFER = 128 * MIB
SETTINGS = {
    "net.ipv6.conf.all.disable_ipv6": "1",
    "net.ipv6.conf.default.disable_ipv6": "1",
    "net.ipv4.tcp_no_metrics_save": "1",
    "net.ipv4.tcp_wmem": f"4096 1048576 {TCP_BUFFER}",
    "net.ipv4.tcp_rmem": f"4096 1048576 {TCP_BUFFER}",
}
work = None  # a folder of this run
nice = -10


def build():
    """Compiles the emulator into the folder of this run."""
    emulator = f"{work}/emulator"
    subprocess.run(["cc", "-O2", "-pthread", "-o", emulator, ROOT / "tests/emulator/emulator.c"], check=True, timeout=120)
    return emulator


def processor_times():
    words = open("/proc/stat").readline().split()[1:9]
    user, low, system, idle, waiting, hard, soft, steal = map(int, words)
    return {"all": sum(map(int, words)), "idle": idle + waiting, "steal": steal}


class HostPath:
    """Two namespaces and the emulator between them; the left one sends. Rates in bit/s, times in seconds, queues in packets."""

    def __init__(self, rate, rtt, queue, loss=0.0, seed=1, interval_ms=0):
        self.rate, self.rtt, self.queue, self.loss, self.seed, self.interval_ms = rate, rtt, queue, loss, seed, interval_ms
        self.names = {side: f"outside-{os.getpid()}-{side}" for side in ("left", "right")}
        self.started, self.waits, self.emulator, self.watcher = [], {}, None, None
        self.over = threading.Event()

    def __enter__(self):
        try:
            self.set_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def set_up(self):
        for side, here, there in (("left", LEFT, RIGHT), ("right", RIGHT, LEFT)):
            name = self.names[side]
            for words in (
                f"netns add {name}", f"-n {name} link set lo up", f"-n {name} tuntap add dev emu0 mode tun",
                f"-n {name} link set emu0 mtu {PACKET} txqueuelen 20000", f"-n {name} addr add {here} peer {there} dev emu0",
            ):
                subprocess.run(["ip", *words.split()], check=True, timeout=20)
            settings = [f"{key}={value}" for key, value in SETTINGS.items()]
            subprocess.run(["ip", "netns", "exec", name, "sysctl", "-qw", *settings], check=True, timeout=20)
            subprocess.run(["ip", "-n", name, "link", "set", "emu0", "up"], check=True, timeout=20)
        way = f"rate={self.rate:.0f},delay_us={self.rtt / 2 * 1e6:.0f},packets={self.queue}"
        # The emulator stands above all others, as a router of its own would.
        self.emulator = subprocess.Popen(
            [f"{work}/emulator", "--left", f"/run/netns/{self.names['left']}", "--right", f"/run/netns/{self.names['right']}",
             "--fifo", "10", "--seconds", "1800", "--interval-ms", str(self.interval_ms),
             "--forward", f"{way},loss={self.loss},seed={self.seed}", "--back", f"{way},seed={self.seed + 1}"],
            stdout=subprocess.PIPE, text=True)
        if json.loads(self.emulator.stdout.readline() or "{}").get("event") != "ready":
            raise RuntimeError("the emulator did not start")
        # Its lines are taken as they come, so that it never waits for us.
        self.lines = []
        self.reader = threading.Thread(target=lambda: self.lines.extend(self.emulator.stdout), daemon=True)
        self.reader.start()
        self.watcher = threading.Thread(target=self.watch, daemon=True)
        self.watcher.start()
        self.begun, self.before = time.monotonic(), processor_times()

    def run(self, side, words, limit, **more):
        """Starts a program on one host; it is ended after `limit` seconds, and with this path."""
        words = ["ip", "netns", "exec", self.names[side], "nice", "-n", str(nice), "timeout", "-k", "5", str(limit), *map(str, words)]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, text=True, start_new_session=True, **more)
        self.started.append(process)
        try:
            # Linux shares processors among sessions first, so the session has to be nice, too.
            open(f"/proc/{process.pid}/autogroup", "w").write(str(nice))
        except OSError:
            pass
        return process

    def watch(self):
        """Notes how long the programs waited for a processor, of all their threads."""
        while not self.over.wait(1.0):
            for process in list(self.started):
                try:
                    children = open(f"/proc/{process.pid}/task/{process.pid}/children").read().split()
                    for child in children:
                        for task in os.listdir(f"/proc/{child}/task"):
                            self.waits[child, task] = int(open(f"/proc/{child}/task/{task}/schedstat").read().split()[1])
                except (OSError, IndexError):
                    pass

    def finish(self):
        """Ends the emulator. Returns what it counted, and why the run does not count, if so."""
        seconds = time.monotonic() - self.begun
        after = processor_times()
        device, sockets = {}, {}
        for side, name in self.names.items():
            links = subprocess.run(["ip", "-n", name, "-s", "-j", "link", "show", "emu0"], capture_output=True, check=True, timeout=20)
            device[side] = json.loads(links.stdout)[0]["stats64"]["tx"]["dropped"]
            snmp = subprocess.run(["ip", "netns", "exec", name, "cat", "/proc/net/snmp"], capture_output=True, text=True, check=True, timeout=20)
            names, values = [line.split()[1:] for line in snmp.stdout.splitlines() if line.startswith("Udp:")]
            sockets[side] = int(dict(zip(names, values))["RcvbufErrors"])
        self.emulator.terminate()
        self.emulator.wait(20)
        self.reader.join(20)
        lines = [json.loads(line) for line in self.lines]
        end = lines[-1]
        why = []
        for way, share in (("forward", 0.01), ("back", 0.05)):
            late = end[way]["own_late_us"]
            # Bounds are parts of a round trip: a hundredth for 99 of 100 packets (a twentieth on the way back), a fifth for each.
            if late["p99"] > max(500, share * self.rtt * 1e6):
                why.append(f"{way}: 1 of 100 packets was {late['p99'] / 1000:.1f} ms late or more")
            if late["most"] > max(10000, 0.2 * self.rtt * 1e6):
                why.append(f"{way}: a packet was {late['most'] / 1000:.1f} ms late")
            if end[way]["overruns"] or end[way]["write_errors"]:
                why.append(f"{way}: {end[way]['overruns']} overruns, {end[way]['write_errors']} write errors")
        why += [f"device of {side} dropped {n}" for side, n in device.items() if n]
        why += [f"sockets of {side} overflowed {n} times" for side, n in sockets.items() if n]
        spent = {key: after[key] - self.before[key] for key in after}
        machine = {
            "idle": round(spent["idle"] / max(1, spent["all"]), 3), "steal": round(spent["steal"] / max(1, spent["all"]), 4),
            "load": os.getloadavg()[0], "waited_for_processor_s": round(sum(self.waits.values()) / 1e9, 2), "seconds": round(seconds, 2),
        }
        path = {"rate_bps": self.rate, "rtt_s": self.rtt, "queue_packets": self.queue, "loss": self.loss, "seed": self.seed}
        return {"path": path, "invalid": why, "machine": machine, "emulator": end}, lines

    def __exit__(self, *_):
        self.over.set()
        for process in [*self.started, self.emulator]:
            if process and process.poll() is None:
                process.terminate()
                try:
                    process.wait(8)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait(8)
        for name in self.names.values():
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, timeout=20)


def product(rate, rtt):
    """Packets of one bandwidth-delay product."""
    return rate * rtt / 8 / PACKET


def until(what, seconds):
    limit = time.monotonic() + seconds
    while not what():
        if time.monotonic() > limit:
            raise RuntimeError("a server did not start")
        time.sleep(0.02)


def counted(end, kind):
    """What the emulator counted of one kind, and its own share of loss."""
    c = end["forward"][kind]
    return {"in": c["in"], "queue_drops": c["queue_drops"], "random_drops": c["random_drops"], "own_loss": c["queue_drops"] / max(1, c["in"])}


def jain(values):
    squares = sum(v * v for v in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 0.0


# --- Senders. Each gives a list of flows; a flow is a list of (seconds since it dialled, bytes that arrived by then).


def bytes_at(flow, t):
    """Bytes that had arrived t seconds after the flow dialled."""
    before = (0.0, 0)
    for point in flow:
        if point[0] >= t:
            share = (t - before[0]) / (point[0] - before[0]) if point[0] > before[0] else 1
            return before[1] + share * (point[1] - before[1])
        before = point
    return before[1]


def goodput(flow, begin, end):
    return (bytes_at(flow, end) - bytes_at(flow, begin)) * 8 / (end - begin)


class Ours:
    """`sabul perf`, each flow a process of its own, with a server of its own and no memory of the path."""

    kind = "udp"

    def __init__(self, path, flows, seconds, first_port=PORT):
        self.clients, self.starts = [], {}
        tickets = [f"{work}/ticket-{os.getpid()}-{first_port + i}" for i in range(flows)]
        for i, ticket in enumerate(tickets):
            Path(ticket).unlink(missing_ok=True)
            path.run("right", [SABUL, "perf", "serve", "--once", "--listen", f"{RIGHT}:{first_port + i}", "--ticket-file", ticket],
                     seconds + 60, env=environment("server"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: all(os.path.exists(t) and os.path.getsize(t) for t in tickets), 60)
        self.threads = []
        self.lines = [[] for _ in tickets]
        for i, ticket in enumerate(tickets):
            launched = time.monotonic()
            client = path.run("left", [SABUL, "perf", f"{RIGHT}:{first_port + i}", "--ticket", ticket, "--fresh", "-t", seconds, "--json-lines"],
                              seconds + 40, env=environment("client"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            self.clients.append((client, launched))
            self.threads.append(threading.Thread(target=self.read, args=(i, client), daemon=True))
            self.threads[-1].start()

    def read(self, i, client):
        for line in client.stdout:
            self.lines[i].append((time.monotonic(), json.loads(line)))

    def wait(self):
        flows, self.told, self.dialled = [], [], []
        for i, (client, launched) in enumerate(self.clients):
            client.wait()
            self.threads[i].join(5)
            started = next((at for at, line in self.lines[i] if line["event"] == "started"), None)
            done = next((line for _, line in self.lines[i] if line["event"] == "done"), None)
            flow, total, t = [], 0, 0.0
            if started is not None and done is not None:
                for interval in done["intervals"]:
                    total += interval["goodput_bps"] / 8 * (interval["t_s"] - t)
                    t = interval["t_s"]
                    flow.append((started - launched + t, total))
            flows.append(flow)
            self.dialled.append(started and started - launched)
            self.told.append(done and {key: done[key] for key in ("packets_sent", "packets_lost", "packets_retransmitted", "rtt_ms", "limiter")})
        return flows


class Kernel:
    """The kernel's TCP with one of its controllers; the flows share a process on each side."""

    kind = "tcp"

    def __init__(self, path, flows, seconds, cc, port=PORT - 1):
        told = f"{work}/tcp-{os.getpid()}-{port}"
        Path(told).unlink(missing_ok=True)
        self.receiver = path.run("right", [sys.executable, HERE, "tcp-receive", RIGHT, port, flows, seconds + 20, told], seconds + 40, stdout=subprocess.PIPE)
        until(lambda: os.path.exists(told), 20)
        self.sender = path.run("left", [sys.executable, HERE, "tcp-send", RIGHT, port, flows, seconds, cc], seconds + 40)

    def wait(self):
        self.sender.wait()
        time.sleep(0.3)
        self.receiver.terminate()
        out, _ = self.receiver.communicate(timeout=20)
        return [[tuple(point) for point in flow] for flow in json.loads(out)]


def environment(name):
    """Each host has caches and sockets of its own."""
    folder = f"{work}/{name}"
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return {**os.environ, "XDG_CACHE_HOME": folder, "XDG_RUNTIME_DIR": folder}


def tcp_send(address, port, flows, seconds, cc):
    """Sends on so many connections for so long. Each begins with the time when it dialled."""
    chunk, chooser, end = bytes(256 * 1024), selectors.DefaultSelector(), time.monotonic() + float(seconds)
    for _ in range(int(flows)):
        s = socket.socket()
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, cc.encode())
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.setblocking(False)
        dialled = time.monotonic()
        s.connect_ex((address, int(port)))
        chooser.register(s, selectors.EVENT_WRITE, struct.pack("d", dialled))
    while time.monotonic() < end:
        for key, _ in chooser.select(0.1):
            try:
                key.fileobj.send(key.data or chunk)
                if key.data:
                    chooser.modify(key.fileobj, selectors.EVENT_WRITE, b"")
            except BlockingIOError:
                pass


def tcp_receive(address, port, flows, seconds, told):
    """Counts what arrives, until it is ended. Prints for each flow [seconds since it dialled, bytes] every tenth of a second."""
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    end = time.monotonic() + float(seconds)
    listener = socket.create_server((address, int(port)), backlog=256)
    listener.setblocking(False)
    chooser, buffer, flows = selectors.DefaultSelector(), bytearray(MIB), []
    chooser.register(listener, selectors.EVENT_READ, None)
    open(told, "w").write("ready\n")
    while time.monotonic() < end and not stopping:
        for key, _ in chooser.select(0.1):
            if key.data is None:
                s, _ = listener.accept()
                s.setblocking(False)
                flows.append({"bytes": 0, "head": b"", "points": []})
                chooser.register(s, selectors.EVENT_READ, flows[-1])
                continue
            flow = key.data
            try:
                n = key.fileobj.recv_into(buffer)
            except BlockingIOError:
                continue
            except OSError:
                n = 0
            if n == 0:
                chooser.unregister(key.fileobj)
                continue
            if len(flow["head"]) < 8:
                flow["head"] += bytes(buffer[: min(n, 8 - len(flow["head"]))])
            flow["bytes"] += n
            now = time.monotonic()
            if not flow["points"] or now - flow["points"][-1][0] >= 0.1:
                flow["points"].append((now, flow["bytes"]))
    told = []
    for flow in flows:
        dialled = struct.unpack("d", flow["head"])[0] if len(flow["head"]) == 8 else 0
        told.append([(round(at - dialled, 3), n) for at, n in flow["points"]])
    print(json.dumps(told))


# --- Parts. Each yields records; `key` names the row of the table, `values` its columns.


def record(part, key, values, told, **more):
    return {"part": part, "key": key, "values": values, **told, **more}


def start(options):
    """The start: goodput of the first 15 s from dialling on, over 1 Gb/s x 100 ms."""
    rate, rtt, seconds = 1e9, 0.1, 15
    for turn in range(options.rounds):
        for loss in options.loss:
            for queue in options.queue:
                for sender in options.sender:
                    with HostPath(rate, rtt, round(queue * product(rate, rtt)), loss / 100, seed=1000 * turn + 1) as path:
                        flows = Ours(path, 1, seconds + 1) if sender == "sabul" else Kernel(path, 1, seconds + 1, sender)
                        [flow] = flows.wait() or [[]]
                        told, _ = path.finish()
                    own = counted(told["emulator"], flows.kind)
                    values = {
                        "first 15 s Mb/s": goodput(flow, 0, 15) / 1e6, "5 to 15 s Mb/s": goodput(flow, 5, 15) / 1e6,
                        "first 2 s Mb/s": goodput(flow, 0, 2) / 1e6, "own loss %": own["own_loss"] * 100,
                        "longest queue": told["emulator"]["forward"]["longest_packets"], "mean wait ms": told["emulator"]["forward"]["mean_wait_us"] / 1000,
                    }
                    if flow and sender == "sabul":
                        values["dialled s"] = flows.dialled[0]
                    yield record("start", [f"{loss:g} %", f"{queue:g} BDP", sender], values, told, flow=flow[::5], own=own, said=getattr(flows, "told", None))


def crowd(options):
    """Crowds: as many flows of each kind alone over 100 Mb/s x 40 ms x 1 BDP, 60 s; Jain of 20 to 60 s."""
    rate, rtt, seconds = 100e6, 0.04, 60
    for turn in range(options.rounds):
        for count in options.flows:
            for sender in options.sender:
                with HostPath(rate, rtt, round(product(rate, rtt)), seed=1000 * turn + 1, interval_ms=500) as path:
                    flows = Ours(path, count, seconds) if sender == "sabul" else Kernel(path, count, seconds, sender)
                    points = flows.wait()
                    told, lines = path.finish()
                late = [goodput(flow, 20, seconds) for flow in points]
                late += [0.0] * (count - len(late))
                # The last 40 s before the first flow ends, by the emulator's own lines.
                busy = [line for line in lines if line["forward"][flows.kind]["in"] > 0]
                first = busy[0]["t_s"] if busy else 0
                at = lambda t: min(lines[1:], key=lambda line: abs(line["t_s"] - first - t))["forward"][flows.kind] if lines[1:] else None
                a, b = at(20), at(seconds - 2)
                lost = (b["queue_drops"] - a["queue_drops"]) / max(1, b["in"] - a["in"])
                values = {
                    "loss %": counted(told["emulator"], flows.kind)["own_loss"] * 100, "loss after 20 s %": lost * 100, "Jain": jain(late),
                    "sum Mb/s": sum(late) / 1e6, "least Mb/s": min(late) / 1e6, "most Mb/s": max(late) / 1e6,
                    "mean wait ms": told["emulator"]["forward"]["mean_wait_us"] / 1000,
                }
                yield record("crowd", [str(count), sender], values, told, goodputs=[round(v) for v in late])


def beside(options):
    """One flow beside one kernel CUBIC, which starts a second earlier, over 300 Mb/s; 100 s, shares of 10 to 100 s."""
    rate, seconds = 300e6, 100
    for turn in range(options.rounds):
        for rtt, queue in options.path:
            for sender in options.sender:
                with HostPath(rate, rtt / 1000, round(queue * product(rate, rtt / 1000)), seed=1000 * turn + 1) as path:
                    first = Kernel(path, 1, seconds + 1, "cubic")
                    time.sleep(1)
                    second = Ours(path, 1, seconds) if sender == "sabul" else Kernel(path, 1, seconds, sender, port=PORT - 2)
                    [theirs], [own] = first.wait() or [[]], second.wait() or [[]]
                    told, _ = path.finish()
                end = told["emulator"]
                a, b = goodput(theirs, 11, seconds + 1), goodput(own, 10, seconds)
                values = {
                    "CUBIC Mb/s": a / 1e6, "beside it Mb/s": b / 1e6, "CUBIC's share": a / max(1, a + b), "sum Mb/s": (a + b) / 1e6,
                    "mean wait ms": end["forward"]["mean_wait_us"] / 1000,
                    "loss beside it %": counted(end, second.kind)["own_loss"] * 100,
                }
                yield record("beside", [f"{rtt:g} ms", f"{queue:g} BDP", sender], values, told)


def cp(options):
    """`sabul cp` of one file by ticket over 1 Gb/s x 100 ms x 1 BDP without loss: wall time, first contact and later."""
    rate, rtt = 1e9, 0.1
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    for turn in range(options.rounds):
        for size in options.mib:
            with tempfile.TemporaryDirectory(prefix="outside-", dir=memory) as disk:
                free = shutil.disk_usage(disk).free
                available = int(next(line for line in open("/proc/meminfo") if line.startswith("MemAvailable")).split()[1]) * 1024
                if min(free, available) < (2 * size + 4096) * MIB:
                    print(f"cp of {size} MiB: not run, memory has not room for two of it", file=sys.stderr)
                    continue
                block = os.urandom(16 * MIB)
                with open(f"{disk}/file", "wb") as f:
                    for i in range(-(-size // 16)):
                        f.write((i.to_bytes(8, "big") + block[8:])[: min(16, size - 16 * i) * MIB])
                env = environment(f"cp-{turn}-{size}")  # an empty cache, so the first contact knows nothing
                for contact in ("first", "later"):
                    root = f"{disk}/root"
                    os.mkdir(root)
                    ticket = f"{disk}/ticket"
                    Path(ticket).unlink(missing_ok=True)
                    limit = 60 + size // 8
                    with HostPath(rate, rtt, round(product(rate, rtt)), seed=1000 * turn + 1) as path:
                        path.run("right", [SABUL, "serve", "--root", root, "--listen", f"{RIGHT}:{PORT}", "--ticket-file", ticket], limit + 30,
                                 env=environment("server"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                        until(lambda: os.path.exists(ticket) and os.path.getsize(ticket), 20)
                        begin = time.monotonic()
                        client = path.run("left", [SABUL, "cp", "-q", f"{disk}/file", "sabul:///", "--ticket", ticket], limit, env=env)
                        code = client.wait()
                        wall = time.monotonic() - begin
                        told, _ = path.finish()
                    same = code == 0 and filecmp.cmp(f"{disk}/file", f"{root}/file", shallow=False)
                    if not same:
                        told["invalid"].append(f"copy failed with exit code {code}")
                    shutil.rmtree(root)
                    values = {
                        "wall s": wall, "Mb/s": size * MIB * 8 / wall / 1e6, "own loss %": counted(told["emulator"], "udp")["own_loss"] * 100,
                        "longest queue": told["emulator"]["forward"]["longest_packets"],
                    }
                    yield record("cp", [f"{size} MiB", contact], values, told)


def check(options):
    """The emulator against its settings, by programs that know nothing of it: ping, iperf3."""
    def iperf(path, words, seconds):
        path.run("right", ["iperf3", "-s", "-1"], seconds + 30, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.5)
        client = path.run("left", ["iperf3", "-c", RIGHT, "-J", "-t", seconds, *words.split()], seconds + 30, stdout=subprocess.PIPE)
        return json.loads(client.communicate()[0])["end"]

    for turn in range(options.rounds):
        for rtt in (15, 37, 80, 100, 150):
            with HostPath(1e9, rtt / 1000, 1000) as path:
                ping = path.run("left", ["ping", "-q", "-c", "100", "-i", "0.05", RIGHT], 60, stdout=subprocess.PIPE)
                least, mean, most, _ = map(float, ping.communicate()[0].split("=")[-1].split()[0].split("/"))
                told, _ = path.finish()
            yield record("check", [f"ping, {rtt} ms"], {"asked": rtt, "mean": mean, "least": least, "most": most}, told)
        for rate, packet in ((100e6, 1448), (300e6, 1448), (1e9, 1448)):
            with HostPath(rate, 0.02, round(product(rate, 0.02))) as path:
                got = iperf(path, "-C cubic -O 2", 10)["sum_received"]["bits_per_second"]
                told, _ = path.finish()
            asked = rate * packet / PACKET
            yield record("check", [f"TCP, {rate / 1e6:g} Mb/s x 20 ms"], {"asked": asked / 1e6, "mean": got / 1e6, "of it": got / asked}, told)
        for rate in (100e6, 300e6, 1e9):
            with HostPath(rate, 0.02, 2000) as path:
                end = iperf(path, f"-u -b {rate * 1.1:.0f} -l 1448 -w 8M", 10)["sum_received"]
                told, _ = path.finish()
            asked, got = rate * 1448 / 1476, end["bits_per_second"]
            yield record("check", [f"UDP at 1.1 times {rate / 1e6:g} Mb/s"], {"asked": asked / 1e6, "mean": got / 1e6, "of it": got / asked}, told)
        for loss in (0.1, 1, 5, 20):
            with HostPath(1e9, 0.02, 1000, loss / 100, seed=turn + 1) as path:
                end = iperf(path, "-u -b 200M -l 1448 -w 8M", 15)["sum"]
                told, _ = path.finish()
            yield record("check", [f"UDP, loss {loss} %"], {"asked": loss, "mean": end["lost_percent"], "packets": end["packets"]}, told)
        # A burst into a slow link: the queue takes its length, and what leaves while the burst comes.
        with HostPath(10e6, 0.02, 1000) as path:
            receiver = path.run("right", [sys.executable, HERE, "udp-count", RIGHT, "4848"], 30, stdout=subprocess.PIPE)
            time.sleep(1)
            sender = path.run("left", [sys.executable, HERE, "udp-burst", RIGHT, "4848", "3000"], 30, stdout=subprocess.PIPE)
            seconds = float(sender.communicate()[0])
            got = int(receiver.communicate()[0])
            told, _ = path.finish()
        yield record("check", ["burst of 3000, queue 1000"], {"asked": 1000 + int(seconds * 10e6 / 8 / PACKET), "mean": got}, told)


def udp_burst(address, port, count):
    s, content, begin = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), bytes(PACKET - 28), time.monotonic()
    for _ in range(int(count)):
        s.sendto(content, (address, int(port)))
    print(time.monotonic() - begin)


def udp_count(address, port):
    s, count = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0
    s.bind((address, int(port)))
    s.settimeout(5)
    try:
        while True:
            s.recv(2048)
            count += 1
    except TimeoutError:
        print(count)


# --- Tables


def table(records):
    """For each row the median of its valid runs, with least and most; the lateness of all."""
    for part in dict.fromkeys(r["part"] for r in records):
        rows = {}
        for r in records:
            if r["part"] == part:
                rows.setdefault(tuple(r["key"]), []).append(r)
        columns = list(dict.fromkeys(name for runs in rows.values() for r in runs for name in r["values"]))
        lines = [[part, *columns, "runs", "invalid", "late ms: p99, most", "idle", "waited s"]]
        for key, runs in rows.items():
            valid = [r for r in runs if not r["invalid"]]
            line = [", ".join(key)]
            for name in columns:
                values = [r["values"][name] for r in valid if name in r["values"]]
                if not values:
                    line.append("-")
                elif len(values) == 1:
                    line.append(f"{values[0]:.4g}")
                else:
                    line.append(f"{statistics.median(values):.4g} ({min(values):.4g} to {max(values):.4g})")
            late = [r["emulator"]["forward"]["own_late_us"] for r in runs]
            line += [str(len(runs)), str(len(runs) - len(valid)),
                     f"{max(l['p99'] for l in late) / 1000:.2f}, {max(l['most'] for l in late) / 1000:.1f}",
                     f"{statistics.median(r['machine']['idle'] for r in runs):.2f}",
                     f"{statistics.median(r['machine']['waited_for_processor_s'] for r in runs):.1f}"]
            lines.append(line)
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        for line in lines:
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
        print()


def numbers(kind):
    return lambda text: [kind(word) for word in text.split(",")]


def main():
    inner = {"tcp-send": tcp_send, "tcp-receive": tcp_receive, "udp-burst": udp_burst, "udp-count": udp_count}
    if len(sys.argv) > 1 and sys.argv[1] in inner:
        return inner[sys.argv[1]](*sys.argv[2:])
    if len(sys.argv) > 1 and sys.argv[1] == "table":
        return table([json.loads(line) for name in sys.argv[2:] for line in open(name)])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    functions = {"check": check, "start": start, "crowd": crowd, "beside": beside, "cp": cp}
    for name, function in functions.items():
        p = parts.add_parser(name, help=function.__doc__, description=function.__doc__)
        p.add_argument("--rounds", type=int, default=1 if name in ("check", "cp") else 3)
        p.add_argument("--raw", help="file to append a line of JSON for each run to", default=f"{name}.jsonl")
        p.add_argument("--nice", type=int, default=-10, help="of all programs but the emulator, which has a real-time priority")
        if name == "start":
            p.add_argument("--loss", type=numbers(float), default=[0, 0.1, 1, 5, 10, 20], help="percent, such as 0,0.1,1")
            p.add_argument("--queue", type=numbers(float), default=[1, 0.1], help="bandwidth-delay products")
            p.add_argument("--sender", type=numbers(str), default=["sabul", "bbr"], help="sabul, or a controller of the kernel")
        if name == "crowd":
            p.add_argument("--flows", type=numbers(int), default=[16, 64])
            p.add_argument("--sender", type=numbers(str), default=["sabul", "cubic"])
        if name == "beside":
            p.add_argument("--path", type=lambda text: [tuple(map(float, word.split("/"))) for word in text.split(",")],
                           default=[(37, 0.7), (80, 0.4), (15, 1.5), (150, 1)], help="ms/products, such as 37/0.7,80/0.4")
            p.add_argument("--sender", type=numbers(str), default=["sabul", "cubic"])
        if name == "cp":
            p.add_argument("--mib", type=numbers(int), default=[512, 4096])
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("run.py: it makes network namespaces, so it needs root")
    if options.part != "check" and not os.access(SABUL, os.X_OK):
        sys.exit(f"run.py: no program {SABUL}; build it, or name one with SABUL")
    # An end by a signal cleans up, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    global work, nice
    nice = options.nice
    with tempfile.TemporaryDirectory(prefix="outside-") as work:
        build()
        records = []
        with open(options.raw, "a") as raw:
            for r in functions[options.part](options):
                records.append(r)
                raw.write(json.dumps(r) + "\n")
                raw.flush()
                values = ", ".join(f"{name} {value:.4g}" for name, value in r["values"].items())
                print(f"{r['part']} {', '.join(r['key'])}: {values}{'; INVALID: ' + '; '.join(r['invalid']) if r['invalid'] else ''}",
                      file=sys.stderr, flush=True)
    table(records)


if __name__ == "__main__":
    main()
