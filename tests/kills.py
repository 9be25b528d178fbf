#!/usr/bin/env python3
"""SIGKILL of either end of `sabul sync` and `sabul apply` at drawn moments: the repeated command ends right.

    tests/kills.py [KILLS [SEED]]      KILLS of sync, and as many of apply

A case copies a drawn tree over an old copy with --delete, by push or by pull. The command is killed up to five times and
then repeated. rsync then finds no difference, and entries that are excluded, or newer than the plan, are still there.
The test counts the bytes on a loopback interface of its own network namespace, and compares them with the bytes of the
same copy without a kill. Without the right to make a namespace, only the trees are checked. SABUL is the program.
"""

import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import sync

SABUL = os.path.abspath(sync.SABUL)
# Bytes of data, and the rate in bit/s: a copy takes about half a second.
LARGE, LARGE_BYTES, RATE = 4, int(os.environ.get("KILLS_BYTES", "2500000")), os.environ.get("KILLS_RATE", "160M")
# A copy with kills may send this part of its bytes twice, besides the data since the last journal record before each
# kill: complete files are flushed, and then noted, once a second, which is 20 MB at this rate.
TWICE_MAX, SINCE_RECORD = 0.02, 32 << 20


def in_namespace():
    """Runs this script again with a loopback interface of its own, if the system permits."""
    if os.environ.get("SABUL_KILLS") == "inside":
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        return True
    flags = ["-n"] if os.geteuid() == 0 else ["-r", "-n"]
    if not shutil.which("ip") or subprocess.run(["unshare", *flags, "true"], capture_output=True).returncode:
        return False
    os.environ["SABUL_KILLS"] = "inside"
    os.execvp("unshare", ["unshare", *flags, sys.executable, *sys.argv])
    return True


def sent():
    """Bytes on the loopback interface so far."""
    for line in pathlib.Path("/proc/net/dev").read_text().splitlines():
        if line.strip().startswith("lo:"):
            return int(line.split()[9])
    return 0


def grow(root, draw):
    sync.add(root, draw, 60)
    for number in range(LARGE):
        (root / f"large{number}").write_bytes(draw.randbytes(LARGE_BYTES))


class Case:
    def __init__(self, work, draw, way, kind):
        self.work, self.draw, self.way, self.kind = work, draw, way, kind
        self.source, self.old, self.served = work / "source", work / "old", work / "served"
        self.ticket, self.copy = work / "ticket", self.served / "copy"
        for folder in (self.source, self.served):
            folder.mkdir()
        sync.add(self.source, draw, 40)
        subprocess.run(["cp", "-a", self.source, self.old], check=True)
        sync.change(self.source, draw, 15)
        grow(self.source, draw)
        sync.add(self.old, draw, 10)
        (self.old / "kept.log").write_text("excluded")
        if way == "pull":
            self.ours, self.theirs = work / "copy", self.served / "source"
            self.copy = self.ours
            shutil.move(self.source, self.theirs)
            self.source = self.theirs
        self.server, self.parts = None, 0
        self.serve()

    def serve(self):
        self.ticket.unlink(missing_ok=True)
        self.server = sync.Case.serve(self)

    def command(self):
        places = [f"{self.source}/", "sabul:///copy"] if self.way == "push" else ["sabul:///source/", str(self.copy)]
        flags = ["-a", "--delete", "--delete-limit", "100000", "--exclude", "*.log"]
        common = ["--ticket", str(self.ticket), "--bwlimit", RATE]
        if self.kind == "sync":
            return [SABUL, "sync", *flags, *common, *places]
        plan = str(self.work / "plan")
        done = sync.run([SABUL, "sync", "-n", "--plan", plan, *flags, "--ticket", str(self.ticket), *places])
        assert done.returncode == 0, done.stdout.decode(errors="replace")
        # This entry is not in the plan.
        (self.copy / "late").write_text("new")
        return [SABUL, "apply", *common, plan]

    def begin(self):
        shutil.rmtree(self.copy, ignore_errors=True)
        subprocess.run(["cp", "-a", self.old, self.copy], check=True)
        return self.command()

    def finish(self, command):
        done = sync.run(command)
        text = done.stdout.decode(errors="replace")
        assert done.returncode == 0, (done.returncode, text)
        late = ["--exclude=/late"] if self.kind == "apply" else []
        judge = sync.run([*sync.RSYNC, "--exclude=*.log", "--exclude=*.sabul-part", *late, f"{self.source}/", f"{self.copy}/"])
        lines = judge.stdout.decode(errors="replace").splitlines()
        # The late entry changes the time of the directory.
        lines = [line for line in lines if not (late and line.startswith(".d..t") and line.endswith(" ./"))]
        assert judge.returncode == 0 and not lines, (lines, text)
        assert (self.copy / "kept.log").read_text() == "excluded"
        assert not late or (self.copy / "late").read_text() == "new"
        # A part file of a killed process stays in a directory into which no later attempt writes.
        parts = [path.name for path in self.copy.rglob("*.sabul-part")]
        # A journal is removed in any case. Drawn names may begin with a dot, too.
        assert not [name for name in parts if name.startswith(".resume-")], parts
        self.parts = len(parts)
        return text.strip().splitlines()[-1]

    def kill(self, command, after):
        """Runs the command and kills an end after this time. Returns the killed end and whether it was running."""
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(after)
        is_in_time = running.poll() is None
        if self.draw.random() < 0.5:
            running.kill()
            running.wait()
            time.sleep(0.2)
            return "client", is_in_time
        self.server.kill()
        self.server.wait()
        running.wait(timeout=120)
        self.serve()
        return "server", is_in_time

    def stop(self):
        self.server.kill()
        self.server.wait()


def case(seed, kind, kills, is_counting):
    """Runs a case with this number of kills; returns one record."""
    draw = random.Random(seed)
    work = pathlib.Path(tempfile.mkdtemp(prefix="sabul-kills-"))
    it = Case(work, draw, draw.choice(["push", "pull"]), kind)
    record = {"kind": kind, "seed": seed, "way": it.way, "killed": []}
    try:
        command = it.begin()
        start, before = time.monotonic(), sent()
        it.finish(command)
        whole, seconds = sent() - before, time.monotonic() - start
        command = it.begin()
        before = sent()
        for _ in range(kills):
            after = draw.random() * seconds
            end, is_in_time = it.kill(command, after)
            record["killed"].append({"end": end, "after_s": round(after, 3), "was_running": is_in_time})
        record["line"], record["part_files"] = it.finish(command), it.parts
        record["whole_bytes"], record["sent_bytes"] = whole, sent() - before
        if is_counting:
            most = whole * (1 + TWICE_MAX) + kills * SINCE_RECORD
            assert record["sent_bytes"] <= most, "too many bytes were sent twice"
    except Exception:
        print(f"seed {seed}, {kind}, {it.way}, tree {work}: {record}")
        raise
    finally:
        it.stop()
    shutil.rmtree(work)
    if not is_counting:
        del record["whole_bytes"], record["sent_bytes"]
    return record


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    if not shutil.which("rsync"):
        print("tests/kills.py: skipped: rsync is not installed")
        return
    is_counting = in_namespace()
    for kind in ("sync", "apply"):
        records = []
        killed = 0
        while killed < count:
            kills = min(1 + seed % 5, count - killed)
            records.append(case(seed, kind, kills, is_counting))
            if os.environ.get("KILLS_OUT"):
                with open(os.environ["KILLS_OUT"], "a", encoding="utf-8") as out:
                    out.write(json.dumps(records[-1]) + "\n")
            killed += kills
            seed += 1
        print(f"{kind}: {killed} kills in {len(records)} copies; the repeated command ended right; "
              f"{sum(record['part_files'] for record in records)} part files stayed")
        if is_counting:
            extra = [record["sent_bytes"] - record["whole_bytes"] for record in records]
            whole = sum(record["whole_bytes"] for record in records)
            per_kill = [more / len(record["killed"]) for more, record in zip(extra, records)]
            print(f"  sent twice: {100 * sum(extra) / whole:.2f} % of {whole} bytes; for each kill "
                  f"{statistics.median(per_kill):.0f} bytes (median), {max(per_kill):.0f} (maximum)")


if __name__ == "__main__":
    main()
