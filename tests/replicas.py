#!/usr/bin/env python3
"""Three replicas of one directory while both ends are killed and files change at every place: all replicas converge.

    tests/replicas.py [RUNS [SEED]]        SABUL is the program

A run starts `sabul replicate --watch --delete` to two servers and a local directory, and changes, adds, renames and
removes files of the source. Between these changes, servers and the command are ended by SIGKILL and started again, and
files of the replicas are changed or added. At the end each replica has every file of the source, every text that
was written at the replica, and no other file. Meanwhile no file of a replica ever has a text that nobody wrote.
One line of JSON for each run.
"""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SABUL = os.path.abspath(os.environ.get("SABUL", "target/release/sabul"))
ROUNDS = 4
PATIENCE_S = 60
SITES = 3


class Run:
    def __init__(self, folder, draw):
        self.folder, self.draw = pathlib.Path(folder), draw
        self.source = self.folder / "source"
        self.source.mkdir()
        self.env = {key: value for key, value in os.environ.items() if not key.startswith("SABUL")}
        self.env |= {"HOME": folder, "XDG_RUNTIME_DIR": folder, "XDG_STATE_HOME": f"{folder}/state"}
        for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "SSH_AUTH_SOCK"):
            self.env.pop(name, None)
        self.key = self.folder / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key], check=True)
        (self.folder / "authorized").write_text((self.folder / "key.pub").read_text())
        self.servers, self.ports, self.command = [None, None], [None, None], None
        self.texts, self.own = set(), [set() for _ in range(SITES)]
        self.kills = self.changes = self.foreign = 0
        self.replicas = [self.folder / "root0/copy", self.folder / "root1/copy", self.folder / "copy2"]

    def listen(self, site):
        """Words before the command of a server, and its address."""
        return [], "127.0.0.1"

    def new_file(self, path):
        """Called with each file of the source before the file takes its name."""

    def serve(self, site):
        """Starts a server with the key and the port of its first start."""
        before, host = self.listen(site)
        root = self.folder / f"root{site}"
        root.mkdir(exist_ok=True)
        log = self.folder / f"serve{site}.log"
        with open(log, "w") as out:
            self.servers[site] = subprocess.Popen(
                [*before, SABUL, "serve", "--root", root, "--listen", f"{host}:{self.ports[site] or 0}", "--allow-rm",
                 "--authorized-keys", self.folder / "authorized", "--state", self.folder / f"state{site}",
                 "--ticket-file", self.folder / f"ticket{site}", "--json-lines"],
                env=self.env, stdout=out, stderr=subprocess.STDOUT)

        def address():
            if self.servers[site].poll() is not None:
                sys.exit(f"server {site} ended: {log.read_text()}")
            for line in log.read_text().splitlines():
                event = json.loads(line) if line.startswith("{") else {}
                if event.get("event") == "started":
                    return event["address"]
        self.ports[site] = int(wait(address, f"start of server {site}").rsplit(":", 1)[1])

    def places(self):
        return [f"sabul://127.0.0.1:{port}/copy" for port in self.ports] + [str(self.folder / "copy2")]

    def words(self, *more):
        return [SABUL, "replicate", *more, "--delete", "--delete-limit", "1000", "--identity", self.key, "--accept-new",
                "--timeout", "5", f"{self.source}/", *self.places()]

    def start(self):
        self.command = subprocess.Popen(self.words("--watch", "-q"), env=self.env, cwd=self.folder,
                                        stdout=subprocess.DEVNULL, stderr=open(self.folder / "replicate.log", "a"))

    def in_step(self):
        status = subprocess.run([SABUL, "replicate", "status", "--json"], env=self.env, capture_output=True, check=True)
        replicas = json.loads(status.stdout)["replicas"]
        return len(replicas) == SITES and all(replica["in_step"] for replica in replicas)

    def text(self, where):
        """A new text, from short to several blocks."""
        size = self.draw.choice([0, 10, 1000, 100_000, 3_000_000])
        text = f"{where} {len(self.texts)} " + self.draw.choice("abc") * size
        self.texts.add(text)
        return text

    def change_source(self):
        self.changes += 1
        files = [path for path in self.source.rglob("*") if path.is_file()]
        kind = self.draw.choice(["new", "new", "change", "change", "remove", "rename"])
        if kind == "new" or len(files) < 5:
            folder = self.source / self.draw.choice([".", "a", "a/b", "c"])
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"f{self.changes}"
        else:
            path = self.draw.choice(files)
        if kind == "remove" and len(files) >= 5:
            path.unlink()
        elif kind == "rename" and len(files) >= 5:
            path.rename(path.with_name(f"r{self.changes}"))
        else:
            # One step, so that a reader never finds half of the text.
            new = self.folder / "new"
            new.write_text(self.text("source"))
            self.new_file(new)
            new.rename(path)

    def change_replica(self):
        """Changes a file that came from the source, or adds one."""
        site = self.draw.randrange(SITES)
        files = [path for path in self.replicas[site].rglob("*") if path.is_file() and path.suffix == ""]
        self.foreign += 1
        text = self.text("replica")
        self.own[site].add(text)
        path = self.draw.choice(files) if files and self.draw.random() < 0.7 else self.replicas[site] / f"own{self.foreign}"
        if path.exists() and path.read_text() in self.own[site]:
            path = self.replicas[site] / f"own{self.foreign}"
        path.parent.mkdir(parents=True, exist_ok=True)
        new = self.folder / "new"
        new.write_text(text)
        new.rename(path)

    def kill(self):
        self.kills += 1
        which = self.draw.randrange(SITES)
        process = self.command if which == 2 else self.servers[which]
        process.kill()
        process.wait()
        time.sleep(self.draw.uniform(0, 0.5))
        self.start() if which == 2 else self.serve(which)

    def check_texts(self):
        for replica in self.replicas:
            for path in replica.rglob("*") if replica.exists() else []:
                if path.is_file() and not path.name.endswith(".sabul-part") and ".sabul-" not in path.name:
                    try:
                        text = path.read_text()
                    except FileNotFoundError:
                        continue
                    assert text in self.texts, f"{path} has a text that nobody wrote: {text[:50]!r} of {len(text)} bytes"

    def run(self):
        for site in range(2):
            self.serve(site)
        for _ in range(10):
            self.change_source()
        self.start()
        for _ in range(ROUNDS):
            wait(self.in_step, "replicas in step")
            for _ in range(self.draw.randrange(3)):
                self.change_replica()
            for _ in range(self.draw.randrange(2, 12)):
                self.change_source()
                if self.draw.random() < 0.3:
                    self.kill()
                time.sleep(self.draw.uniform(0, 0.2))
                self.check_texts()
        wait(self.in_step, "replicas in step at the end")
        return self.finish()

    def finish(self):
        """Ends the watch, and checks that all replicas equal the source."""
        self.command.send_signal(signal.SIGTERM)
        assert self.command.wait(PATIENCE_S) == 0, "the watch ended with an error"
        # Changes at a replica that the source has not touched since are found by a comparison.
        subprocess.run(self.words("-q"), env=self.env, check=True, timeout=PATIENCE_S)
        self.check_texts()
        source = {path.relative_to(self.source): path.read_text() for path in self.source.rglob("*") if path.is_file()}
        kept = 0
        for site, replica in enumerate(self.replicas):
            # An interrupted copy may leave a part, which a later copy into the directory removes.
            files = {path.relative_to(replica): path.read_text() for path in replica.rglob("*")
                     if path.is_file() and not path.name.endswith(".sabul-part")}
            for path, text in source.items():
                assert files.pop(path, None) == text, f"{replica}/{path} differs from the source"
            assert set(files.values()) == self.own[site], f"{replica}: other files are {sorted(map(str, files))}"
            kept += len(files)
        return {"rounds": ROUNDS, "changes": self.changes, "foreign": self.foreign, "kept": kept, "kills": self.kills}

    def end(self):
        for process in (self.command, *self.servers):
            if process and process.poll() is None:
                process.kill()
                process.wait()


def wait(found, what):
    end = time.monotonic() + PATIENCE_S
    while not (result := found()):
        if time.monotonic() > end:
            sys.exit(f"no {what} within {PATIENCE_S} s")
        time.sleep(0.05)
    return result


def run_all(kind, runs, seed):
    """Runs this kind of `Run` with each seed, and prints a line of JSON for each."""
    for number in range(seed, seed + runs):
        with tempfile.TemporaryDirectory(prefix="sabul-replicas-") as folder:
            run, start = kind(folder, random.Random(number)), time.monotonic()
            try:
                result = run.run()
            except BaseException:
                log = run.folder / "replicate.log"
                sys.stderr.write(log.read_text()[-2000:] if log.exists() else "")
                raise
            finally:
                run.end()
        print(json.dumps({"seed": number, **result, "seconds": round(time.monotonic() - start, 1)}), flush=True)


def main():
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    if not shutil.which("ssh-keygen"):
        print("replicas.py: skipped: ssh-keygen is not installed; run: apt-get install openssh-client", file=sys.stderr)
        return
    run_all(Run, runs, seed)


if __name__ == "__main__":
    main()
