#!/usr/bin/env python3
"""Checks the receipts of sabul with the tools for which they are made.

    tests/receipts.py

A tree with odd names is copied by `cp` and `sync` to a server, from a server, and between two directories, each with
--receipt. `sha256sum -c`, `b3sum -c` and `ssh-keygen -Y verify` accept the receipt. After one changed letter in any
file of the receipt or of the copy, `sabul verify` and the tool of that file refuse. SABUL is the program. Parts without
their tool are skipped with a word.
"""

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

SABUL = os.path.abspath(os.environ.get("SABUL", "target/release/sabul"))
FILES = ["manifest-sha256.txt", "manifest-blake3.txt", "receipt.json", "receipt.json.sig",
         "receipt.json.sender.sig", "allowed_signers"]
SIGNATURES = {"receiver": "receipt.json.sig", "sender": "receipt.json.sender.sig"}
ODD = [b"line\nfeed", b"back\\slash", b"carriage\rreturn", b"not utf-8 \xff\xfe", b" two  spaces ",
       b"percent%41", "täg".encode(), b"*star", b"quote\"'"]
skipped = []


def run(*command, code=0, **more):
    done = subprocess.run(command, capture_output=True, timeout=120, **more)
    if code is not None and done.returncode != code:
        text = done.stdout.decode(errors="replace") + done.stderr.decode(errors="replace")
        sys.exit(f"{command} in {more.get('cwd', '.')}: exit code {done.returncode}, not {code}\n{text}")
    return done


def has(tool):
    if shutil.which(tool):
        return True
    if tool not in skipped:
        skipped.append(tool)
        print(f"skipped: there is no {tool}")
    return False


class Bench:
    """A directory with keys, a tree, and a server."""

    def __init__(self, home):
        self.home = pathlib.Path(home)
        self.env = {key: value for key, value in os.environ.items() if key != "SSH_AUTH_SOCK"}
        self.env.update(HOME=home, XDG_CONFIG_HOME=f"{home}/config", XDG_RUNTIME_DIR=home)
        for name in ["here", "there"]:
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", f"{home}/{name}")
        (self.home / "root").mkdir()
        self.server = subprocess.Popen(
            [SABUL, "serve", "--root", "root", "--ticket-file", "ticket", "--listen", "127.0.0.1:0",
             "--receipt-key", "there"],
            cwd=home, env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        until = time.monotonic() + 60
        while not (self.home / "ticket").exists():
            if self.server.poll() is not None or time.monotonic() > until:
                sys.exit("the server did not start: " + self.server.stderr.read().decode())
            time.sleep(0.05)

    def sabul(self, *arguments, code=0):
        return run(SABUL, *arguments, code=code, cwd=self.home, env=self.env)

    def copy(self, *arguments, code=0):
        return self.sabul(*arguments, "--receipt-key", "here", "--ticket", "ticket", code=code)

    def end(self):
        self.server.send_signal(signal.SIGINT)
        self.server.wait(timeout=20)


def make_tree(root):
    (root / "sub/empty folder").mkdir(parents=True)
    (root / "zero").write_bytes(b"")
    (root / "sub/large").write_bytes(os.urandom(3_000_000))
    for number, name in enumerate(ODD):
        with open(os.fsencode(root) + b"/" + name, "wb") as file:
            file.write(os.urandom(1 + number * 500))


def verify_signature(folder, role, code=0):
    statement = (folder / "receipt.json").read_bytes()
    run("ssh-keygen", "-Y", "verify", "-f", "allowed_signers", "-I", role, "-n", "sabul-receipt@v1",
        "-s", SIGNATURES[role], cwd=folder, input=statement, code=code)


def digests_agree(folder):
    subjects = json.loads((folder / "receipt.json").read_bytes())["subject"]
    return all(hashlib.sha256((folder / it["name"]).read_bytes()).hexdigest() == it["digest"]["sha256"]
               for it in subjects)


def accepted(bench, folder, root, files):
    """The receipt is right for every tool."""
    folder, root = bench.home / folder, bench.home / root
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES), list(folder.iterdir())
    statement = json.loads((folder / "receipt.json").read_bytes())
    assert statement["predicate"]["files"] == files, statement
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert digests_agree(folder)
    for role in SIGNATURES:
        verify_signature(folder, role)
    if files:
        run("sha256sum", "--strict", "-c", folder / "manifest-sha256.txt", cwd=root)
    if has("b3sum") and files:
        check_b3sum(folder / "manifest-blake3.txt", root)
    bench.sabul("verify", folder)
    done = bench.sabul("verify", "--json", folder, root)
    assert json.loads(done.stdout)["files"] == files, done.stdout


def check_b3sum(manifest, root):
    """b3sum rejects names that are not UTF-8; some versions do not escape CR."""
    lines = []
    for line in manifest.read_bytes().splitlines(keepends=True):
        try:
            line.decode()
        except UnicodeDecodeError:
            continue
        if b"\\r" not in line:
            lines.append(line)
    run("b3sum", "-c", cwd=root, input=b"".join(lines))


def change(path, at):
    """Changes one letter; returns the content before."""
    before = path.read_bytes()
    letter = b"x" if before[at:at + 1] != b"x" else b"y"
    path.write_bytes(before[:at] + letter + before[at + 1:])
    return before


def refused_after_changes(bench, folder, root, below):
    folder, root = bench.home / folder, bench.home / root
    for name in FILES:
        path = folder / name
        size = len(path.read_bytes())
        for at in sorted({0, size // 3, size // 2, size - 2, size - 1}):
            before = change(path, at)
            bench.sabul("verify", folder, code=5)
            if name.startswith("manifest"):
                assert not digests_agree(folder), (name, at)
            elif name == "receipt.json":
                for role in SIGNATURES:
                    verify_signature(folder, role, code=255)
            path.write_bytes(before)
        before = path.read_bytes()
        path.write_bytes(before + before[-80:])
        bench.sabul("verify", folder, code=5)
        path.unlink()
        done = bench.sabul("verify", folder, code=5)
        assert name in done.stderr.decode(), (name, done.stderr)
        path.write_bytes(before)
    for name in ["sub/large", "line\nfeed", "percent%41"]:
        path = root / below / name
        before = change(path, path.stat().st_size // 2)
        done = bench.sabul("verify", folder, root, code=5)
        assert name.split("\n")[0] in done.stderr.decode() and b"copy it again" in done.stderr, done.stderr
        run("sha256sum", "-c", folder / "manifest-sha256.txt", cwd=root, code=1)
        path.unlink()
        bench.sabul("verify", folder, root, code=5)
        path.write_bytes(before)
    bench.sabul("verify", folder, root)


def main():
    if not has("ssh-keygen") or not has("sha256sum"):
        return
    with tempfile.TemporaryDirectory() as home:
        bench = Bench(home)
        try:
            check(bench)
        finally:
            bench.end()
    print("receipts: all right" + (f"; without {', '.join(skipped)}" if skipped else ""))


def check(bench):
    make_tree(bench.home / "src")
    files = 2 + len(ODD)
    at = "sabul:///"
    for arguments, folder, root, count in [
        (["cp", "-r", "src", at], "r1", "root", files),
        # A second copy has nothing to send; the receipt covers the files all the same.
        (["cp", "-r", "src", at], "r2", "root", files),
        (["cp", "-r", "src", at + "renamed"], "r3", "root/renamed", files),
        (["sync", "-a", "src/", at + "synced"], "r4", "root/synced", files),
        (["cp", "-r", at + "src", "back"], "r5", "back", files),
        (["cp", at + "src/sub/large", "other name"], "r6", ".", 1),
        (["cp", "src/zero", at + "a/zero too"], "r7", "root/a", 1),
        (["cp", "-r", "src/sub/empty folder", at + "nothing"], "r8", "root/nothing", 0),
        (["sync", "src/", "local"], "r9", "local", files),
    ]:
        (bench.home / "root/a").mkdir(exist_ok=True)
        bench.copy(*arguments, "--receipt", folder)
        accepted(bench, folder, root, count)
        print("accepted:", " ".join(arguments))
    refused_after_changes(bench, "r1", "root", "src")
    refused_after_changes(bench, "r5", "back", "")
    print("refused: one changed letter, a missing file, an extra line")
    # Keys of the verifier instead of those beside the receipt.
    (bench.home / "mine").write_text("receiver " + (bench.home / "here.pub").read_text())
    bench.sabul("verify", "--allowed-signers", "mine", "r1", code=5)
    keys = [f"{role} {(bench.home / name).read_text()}" for role, name in
            [("receiver", "there.pub"), ("sender", "here.pub")]]
    (bench.home / "mine").write_text("".join(keys))
    bench.sabul("verify", "--allowed-signers", "mine", "r1")
    # A destination that differs has no receipt, and the message names the file.
    (bench.home / "src/zero").write_bytes(b"0")
    os.utime(bench.home / "src/zero", (1, 1))
    done = bench.copy("sync", "--ignore-existing", "src/", at + "synced", "--receipt", "r10", code=5)
    assert b"'zero'" in done.stderr, done.stderr
    assert not (bench.home / "r10/receipt.json").exists()
    bench.copy("cp", "-r", "src", at, "--receipt", "r11", "--no-sync", code=2)
    check_bags(bench)
    check_growing(bench)


def validate(bench, bag, code=0):
    """bagit.py of PyPI; BAGIT is its path, or the module is installed."""
    tool = os.environ.get("BAGIT")
    command = [sys.executable, tool] if tool else [sys.executable, "-m", "bagit"]
    if not tool and run(*command, "--version", code=None).returncode:
        if "bagit" not in skipped:
            skipped.append("bagit")
            print("skipped: there is no bagit; run: pip install bagit")
        return
    run(*command, "--validate", bench.home / bag, code=code)


def check_bags(bench):
    tree = bench.home / "bagged"
    (tree / "sub").mkdir(parents=True)
    for name in ["plain", "two words", "line\nfeed", "carriage\rreturn", "back\\slash", "sub/zero", "täg"]:
        (tree / name).write_bytes(os.urandom(len(name) * 100) if name != "sub/zero" else b"")
    for arguments, bag in [(["cp", "-r", "bagged", "sabul:///bag1"], "root/bag1"),
                           (["cp", "-r", "sabul:///bag1/data/bagged", "bag2"], "bag2")]:
        bench.copy(*arguments, "--bag", "--receipt", f"{bag}.receipt")
        bench.sabul("verify", f"{bag}.receipt", bag)
        manifest = (bench.home / bag / "manifest-sha256.txt").read_bytes()
        assert b"data/bagged/line%0Afeed\n" in manifest and b"carriage%0Dreturn" in manifest, manifest
        validate(bench, bag)
        for name in ["data/bagged/plain", "bagit.txt", "bag-info.txt", "manifest-sha256.txt",
                     "tagmanifest-sha256.txt"]:
            path = bench.home / bag / name
            before = change(path, 5)
            validate(bench, bag, code=1)
            path.write_bytes(before)
        validate(bench, bag)
    (tree / "per%cent").write_bytes(b"x")
    bench.copy("cp", "-r", "bagged", "sabul:///bag3", "--bag")
    # RFC 8493 encodes %; bagit.py 1.9 does not decode it.
    assert b"data/bagged/per%25cent\n" in (bench.home / "root/bag3/manifest-sha256.txt").read_bytes()
    with open(os.fsencode(tree) + b"/\xff", "wb"):
        pass
    done = bench.copy("cp", "-r", "bagged", "sabul:///bag4", "--bag", code=5)
    assert b"not UTF-8" in done.stderr and not (bench.home / "root/bag4/bagit.txt").exists(), done.stderr
    print("bags: two valid, refused after one changed letter")


def check_growing(bench):
    """A file that grows during the copy arrives as a prefix; the receipt counts the file."""
    log = bench.home / "log"
    # More than the sender reads ahead: the copy reads the file for a second, in which a busy machine runs the writer, too.
    least = 16_000_000
    log.write_bytes(b"line 0\n" * (least // 7))
    script = "i=0; while :; do i=$((i+1)); echo line $i; done >> log"
    writer = subprocess.Popen(["sh", "-c", script], cwd=bench.home)
    try:
        while log.stat().st_size < least:
            time.sleep(0.01)
        slow = ["--bwlimit", "128M"]
        done = bench.copy("cp", "log", "sabul:///", "--growing", *slow, "--receipt", "r20", "--json")
        assert json.loads(done.stdout)["grown"] == 1, done.stdout
        bench.copy("cp", "log", "sabul:///again", *slow, code=1)
    finally:
        writer.kill()
        writer.wait()
    copied = (bench.home / "root/log").read_bytes()
    assert copied == log.read_bytes()[:len(copied)] and len(copied) >= least
    assert json.loads((bench.home / "r20/receipt.json").read_bytes())["predicate"]["command"]["grown"] == 1
    bench.sabul("verify", "r20", "root")
    print("growing: a prefix, with a receipt")


if __name__ == "__main__":
    main()
