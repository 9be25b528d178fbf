#!/usr/bin/env python3
"""Compares options of `sabul sync` with those of rsync: drawn trees with odd names, by push, by pull and on one machine.

    tests/options.py [SEEDS [FIRST]]

For each seed, a source and an old destination are drawn. sabul and rsync copy the source with the same options into two
copies of the destination, which must be equal afterwards. `--ignore-file` and `--ignore-name` are compared with git.
SABUL is the program.
"""

import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

import sync

SABUL = sync.SABUL
NAMES = ["a\nb", "-n", "--delete", " x ", "é", "日本", "l" * 250, ".h", "a.o", "b.o", "build", "#c", ";s", "!w", "*", "[x", "a\\b", "{a,b}"]


def name(draw):
    word = draw.choice(NAMES) if draw.random() < 0.5 else sync.name(draw)
    return word + draw.choice(["", "", ".o", ".txt"])[: 255 - len(os.fsencode(word))]


def tree(root, draw, count):
    folders = [root]
    for _ in range(count):
        path = draw.choice(folders) / name(draw)
        if os.path.lexists(path) or len(os.fsencode(path)) > 2000:
            continue
        kind = draw.random()
        if kind < 0.3:
            path.mkdir(mode=draw.choice([0o755, 0o700, 0o750]))
            folders.append(path)
        elif kind < 0.4:
            path.symlink_to(draw.choice(["x", "../x", "/nowhere", "."]))
        else:
            path.write_bytes(draw.randbytes(draw.choice([0, 1, 100, 5000, 70_000])))
            path.chmod(draw.choice([0o600, 0o644, 0o755, 0o640]))
        if not path.is_symlink() and draw.random() < 0.7:
            seconds = draw.randint(1_000_000_000, 1_700_000_000)
            os.utime(path, (seconds, seconds))


def entries(root):
    return sorted(path.relative_to(root) for path in root.rglob("*"))


class FilesFrom:
    """`--files-from`, with and without -r, -0 and missing names."""

    def __init__(self, case):
        draw = case.draw
        names, self.code = [], 0
        for path in entries(case.source):
            if draw.random() > 0.2:
                continue
            text = os.fsencode(path)
            is_directory = (case.source / path).is_dir() and not (case.source / path).is_symlink()
            if is_directory and draw.random() < 0.5:
                text += b"/"
            names.append(draw.choice([b"", b"./"]) + text if text[0] not in b"#;" else b"./" + text)
        from0 = draw.random() < 0.5
        if not from0:
            names = [text for text in names if b"\n" not in text]
        self.delete = draw.random() < 0.5
        if not self.delete and draw.random() < 0.5:
            names.append(b"no such name")
            self.code = 1
        draw.shuffle(names)
        # rsync sets the time of the root only if a name begins with './'.
        self.judge = [] if any(text.startswith(b"./") for text in names) else ["-O"]
        end = b"\0" if from0 else b"\n"
        path = case.work / "list"
        path.write_bytes(b"".join(text + end for text in names))
        self.flags = [f"--files-from={path}"] + ["-0"] * from0 + ["-r"] * (self.delete or draw.random() < 0.5)
        self.rsync = self.flags


class Chmod:
    """`--chmod`, with and without --delete."""

    def __init__(self, case):
        draw = case.draw
        who = lambda: draw.choice(["", "u", "g", "o", "a", "ug", "go"])
        what = lambda: "".join(draw.sample("rwxX", draw.randint(0, 3)))
        symbolic = lambda: who() + draw.choice("+-=") + what()
        # The owner must be able to enter and read.
        changes = [draw.choice(["", "D", "F"]) + symbolic() for _ in range(draw.randint(1, 3))]
        if draw.random() < 0.3:
            changes = ["D755", draw.choice(["F644", "F640", "F400"])]
        changes.append("u+rwX")
        self.code, self.delete = 0, draw.random() < 0.5
        self.flags = self.rsync = ["--chmod=" + ",".join(changes)]


class ExcludeFrom:
    """`--exclude-from` and `--include-from`, with and without --delete: what is excluded stays."""

    def __init__(self, case):
        draw = case.draw
        patterns = ["*.o", "build/", "/build", "a*", "?", ".h", "*.txt", "é*", "/-n", " x ", "b.o/x*", "# no", "; no", ""]
        self.code, self.delete, self.flags = 0, draw.random() < 0.7, []
        for option in draw.sample(["--include-from", "--exclude-from", "--exclude-from"], 2):
            path = case.work / f"patterns{len(self.flags)}"
            lines = [draw.choice(["", "", "", "+ ", "- "]) + draw.choice(patterns) for _ in range(draw.randint(1, 4))]
            path.write_text("".join(line + "\n" for line in lines if line.strip() not in "+-"))
            self.flags.append(f"{option}={path}")
        self.rsync = self.flags
        # An extra directory that stays because of its excluded content has the time of its last change.
        self.judge = ["-O"]


OPTIONS = [FilesFrom, Chmod, ExcludeFrom]


class Case:
    def __init__(self, work, seed):
        self.work, self.draw = work, random.Random(seed)
        self.source = work / "source"
        self.source.mkdir()
        tree(self.source, self.draw, 60)
        old = work / "old"
        subprocess.run(["cp", "-a", self.source, old], check=True)
        sync.change(old, self.draw, 15)
        self.old, self.plain = old, work / "plain"
        subprocess.run(["cp", "-a", self.old, self.plain], check=True)
        self.drop_conflicts(self.plain)

    def serve(self):
        return sync.Case.serve(self)

    def compare(self, options, way):
        shutil.rmtree(self.work / "mine", ignore_errors=True)
        shutil.rmtree(self.work / "theirs", ignore_errors=True)
        mine, theirs = self.work / "mine", self.work / "theirs"
        for copy in (mine, theirs):
            subprocess.run(["cp", "-a", self.old if options.delete else self.plain, copy], check=True)
        places = {
            "push": [f"{self.source}/", "sabul:///mine"],
            "pull": ["sabul:///source/", mine],
            "local": [f"{self.source}/", mine],
        }[way]
        delete = ["--delete"] * options.delete
        limit = ["--delete-limit", "100000"] * options.delete
        ticket = ["--ticket", self.ticket] * (way != "local")
        command = [SABUL, "sync", "-a", *delete, *limit, *ticket, *options.flags, *places]
        done = sync.run(command)
        output = done.stdout.decode(errors="replace")
        rsync = sync.run(["rsync", "-a", "--modify-window=-1", *delete, *options.rsync, f"{self.source}/", f"{theirs}/"])
        if isinstance(options, ExcludeFrom) and "is a folder where a file is needed" in output:
            # An excluded directory in the way of a file stays; rsync removes some of them.
            assert done.returncode == 1, (command, output)
            return
        code = 1 if rsync.returncode == 23 else options.code
        assert done.returncode == code, (command, done.returncode, output)
        self.equal(theirs, mine, getattr(options, "judge", []), [way, options.flags, output])
        # A second run has nothing to do.
        again = sync.run(command)
        lines = again.stdout.decode(errors="replace").strip().splitlines()
        assert lines[-1].startswith("nothing to copy") or code, (command, lines)

    def drop_conflicts(self, copy):
        """Removes directories that are something else at the source: rsync replaces some of them without --delete."""
        kind = lambda path: path.is_dir() and not path.is_symlink()
        for path in entries(copy):
            if os.path.lexists(copy / path) and os.path.lexists(self.source / path):
                if kind(copy / path) != kind(self.source / path):
                    shutil.rmtree(copy / path) if kind(copy / path) else (copy / path).unlink()

    def equal(self, theirs, mine, flags, about):
        judge = [*sync.RSYNC, *flags, "--modify-window=-1", "-c", "-H", f"{theirs}/", f"{mine}/"]
        done = sync.run(judge)
        assert done.stdout == b"", (done.stdout.decode(errors="replace"), about)


IGNORE_WORDS = ["*.o", "build/", "/build", "a*", "?", ".h", "*.txt", "é*", "/-n", "b.o/x*", "*", "!*.o", "!build/", "!a*", "!.h", "**/b*", "a/**",
                "x/*", "!*/", "/*/", "[a-c]*", "[!a]*", "{a,b}", "\\[x", "\\#c", "l*/**/*.o", "* x ", "# no", "", "a\\\\b*", "[[:alpha:]]*",
                "[^[:alnum:]]*", "*[]-]*", "[!]a-]*", "[z-a]", "[a", "b\\", "*.[[:lower:]]", "[\\]!]w", "**", "a**", "!/a*/**/*.o", "*/", "![a-m]*"]


def ignore_words(draw, most):
    return "".join(draw.choice(IGNORE_WORDS) + "\n" for _ in range(draw.randint(1, most)))


def git_files(case, *flags):
    """The files that git does not ignore."""
    git = ["git", f"--git-dir={case.work}/git", f"--work-tree={case.source}"]
    subprocess.run([*git, "init", "-q"], check=True, capture_output=True)
    out = subprocess.run([*git, "ls-files", "--others", "-z", *flags], cwd=case.source, check=True, capture_output=True).stdout
    return {os.fsdecode(name) for name in out.split(b"\0") if name}


def files(root):
    return {str(name) for name in entries(root) if (root / name).is_symlink() or not (root / name).is_dir()}


def ignore_file(case):
    """`--ignore-file` leaves out the files that git leaves out."""
    path = case.work / "ignore"
    valid = [word for word in IGNORE_WORDS if word not in ("[a", "b\\")]
    path.write_text("".join(case.draw.choice(valid) + "\n" for _ in range(case.draw.randint(1, 7))))
    theirs = git_files(case, f"--exclude-from={path}")
    mine = case.work / "ignored"
    shutil.rmtree(mine, ignore_errors=True)
    done = sync.run([SABUL, "sync", "-a", f"--ignore-file={path}", f"{case.source}/", mine])
    assert done.returncode == 0 and files(mine) == theirs, (path.read_text(), sorted(files(mine) ^ theirs), done)


def ignore_name(case, way):
    """`--ignore-name` leaves out the files that git leaves out, by copies and comparisons, and removes nothing of them.

    The destination has files everywhere. Files that the rules exclude stay, and so do the directories above."""
    draw, mine = case.draw, case.work / "ignored"
    shutil.rmtree(mine, ignore_errors=True)
    folders = [case.source] + [path for path in case.source.rglob("*") if path.is_dir() and not path.is_symlink()]
    for folder in folders:
        if draw.random() < 0.4 and not (folder / ".rules").is_dir():
            (folder / ".rules").unlink(missing_ok=True)
            (folder / ".rules").write_text(ignore_words(draw, 4))
    kept = git_files(case, "--exclude-per-directory=.rules")
    places = {
        "push": [f"{case.source}/", "sabul:///ignored"],
        "pull": ["sabul:///source/", mine],
        "local": [f"{case.source}/", mine],
    }[way]
    ticket = ["--ticket", case.ticket] * (way != "local")
    command = [SABUL, "cp", "-qa", "--ignore-name=.rules", *ticket, *places]
    if way != "local":
        done = sync.run(command)
        assert done.returncode == 0 and files(mine) == kept, (way, sorted(files(mine) ^ kept), done)
        shutil.rmtree(mine)
    # Extra files at the destination, in the directories of the source: git says which of them the rules exclude.
    subprocess.run(["cp", "-a", case.source, mine], check=True)
    added = set()
    for folder in folders:
        for word in draw.sample(["new.o", "new.txt", "a new", "build", "build/x.o", "b1/new.o"], 2):
            path = folder / word
            if len(os.fsencode(path)) > 2000 or os.path.lexists(path) or (path.parent != folder and os.path.lexists(path.parent)):
                continue
            path.parent.mkdir(exist_ok=True)
            path.write_text("new")
            added.add(path)
    extra = files(case.source)
    not_ignored = git_files(case, "--exclude-per-directory=.rules")
    stay = extra - not_ignored
    for path in added:
        copy = mine / path.relative_to(case.source)
        copy.parent.mkdir(exist_ok=True)
        path.rename(copy)
        if path.parent not in folders:
            path.parent.rmdir()
    command = [SABUL, "sync", "-a", "--ignore-name=.rules", "--delete", "--delete-limit=100000", *ticket, *places]
    done = sync.run(command)
    if not kept:
        # The rules exclude the whole source, so nothing is removed.
        assert stay <= files(mine), (way, sorted(stay - files(mine)), done)
        return
    assert done.returncode == 0 and files(mine) == kept | stay, (way, sorted(files(mine) ^ (kept | stay)), done)
    again = sync.run(command)
    assert again.stdout.decode(errors="replace").strip().splitlines()[-1].startswith("nothing to copy"), again


def main():
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    if not shutil.which("rsync"):
        print("tests/options.py: skipped: rsync is not installed")
        return
    compared = 0
    for seed in range(first, first + seeds):
        work = pathlib.Path(tempfile.mkdtemp(prefix="sabul-options-"))
        case = Case(work, seed)
        case.served, case.ticket = work, work / "ticket"
        server = case.serve()
        try:
            for kind in OPTIONS:
                for way in ("push", "pull", "local"):
                    options = kind(case)
                    case.compare(options, way)
                    compared += 1
            for _ in range(10):
                ignore_file(case)
            for way in ("push", "pull", "local") * 2:
                ignore_name(case, way)
        except AssertionError:
            print(f"seed {seed}, tree {work}")
            raise
        finally:
            server.kill()
            server.wait()
        shutil.rmtree(work)
    print(f"{seeds} seeds, {compared} comparisons: sabul and rsync leave the same trees; {16 * seeds} with git")


if __name__ == "__main__":
    main()
