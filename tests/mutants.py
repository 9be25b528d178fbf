#!/usr/bin/env python3
"""Mutation test: changes the code in small ways and reports each change that no test notices.

    tests/mutants.py [NUMBER] [SEED] [--area AREA]... [--minutes M] [--jobs J]

Draws NUMBER mutants of each area from SEED. All of them are compiled once, into a copy of the repository: each mutant is
a branch that the environment variable MUTANT selects. The tests then run once for each mutant. A mutant is caught when a
test fails, uses too much processor time or does not end. A mutant that does not compile as a branch is not run.

Needs root (mutated code runs on a read-only file system with a temporary folder of its own), cargo-mutants
(cargo install --locked cargo-mutants) and the Python packages tree-sitter and tree-sitter-rust.
Results: OUT (target/mutants), results-AREA.json.
"""

import argparse
import collections
import concurrent.futures
import importlib.util
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import time

# The package and files of each area, and its tests, the fastest first: package, target (lib or the name of a test program)
# and arguments. Later tests run only for mutants that the earlier tests miss.
CHANNEL_TESTS = [("sabul-channel", "lib", "--skip interval_set"), ("sabul-sim", "it", "channel_ --skip swarm"),
                 ("sabul-sim", "it", "channel_swarm")]
AREAS = {
    "sender": ("sabul-channel", ["transfer/channel/src/sender.rs", "transfer/channel/src/sender/**/*.rs"],
               CHANNEL_TESTS),
    "receiver": ("sabul-channel", ["transfer/channel/src/receiver.rs", "transfer/channel/src/receiver/**/*.rs"],
                 CHANNEL_TESTS),
    "wire": ("sabul-wire", ["transfer/wire/src/**/*.rs"], [("sabul-wire", "lib", "")]),
    "sealing": ("sabul", ["transfer/sabul/src/seal.rs"], [("sabul", "lib", "seal")]),
    "sandbox": ("sabul-files", ["transfer/files/src/root.rs", "transfer/files/src/root/*.rs"],
                [("sabul-files", "lib", "root::"), ("sabul-files", "lib", "disk:: owners hostile parts:: all:: names::")]),
    "journal": ("sabul-files", ["transfer/files/src/journal.rs", "transfer/files/src/have.rs"],
                [("sabul-files", "lib", "journal:: have::"),
                 ("sabul-files", "lib", "resume --skip cut --skip failed --skip damaged"),
                 ("sabul-files", "lib", "damaged_or_foreign_journals")]),
    "memory": ("sabul", ["transfer/sabul/src/budget.rs", "transfer/sabul/src/budget/*.rs"], [("sabul", "lib", "budget::"), ("sabul", "lib", "budget --skip budget::")]),
}

SWITCH = """//! Tells whether a mutant is active.

static ACTIVE: std::sync::LazyLock<u32> =
    std::sync::LazyLock::new(|| std::env::var("MUTANT").map_or(0, |number| number.parse().unwrap()));

/// Whether this mutant is the active mutant.
#[inline]
pub fn is(number: u32) -> bool {
    *ACTIVE == number
}
"""

DEPENDENCY = b'mutant = { path = "../mutant" }\n'

Mutant = collections.namedtuple("Mutant", "number area file genre replacement name start end line")


def draw(areas, number, seed):
    """The drawn mutants by area, and how many there are in all."""
    command = ["cargo", "mutants", "--list", "--json"]
    for package in sorted({AREAS[area][0] for area in areas}):
        command += ["--package", package]
    for file in [file for area in areas for file in AREAS[area][1]]:
        command += ["--file", file]
    listed = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    drawn, totals = [], {}
    for area in areas:
        files = {str(file) for pattern in AREAS[area][1] for file in pathlib.Path().glob(pattern)}
        inside = [each for each in listed if each["file"] in files and not each["file"].endswith("tests.rs")]
        totals[area] = len(inside)
        for each in random.Random(seed).sample(inside, min(number, len(inside))):
            text = pathlib.Path(each["file"]).read_text()
            start, end = (offset(text, each["span"][side]) for side in ("start", "end"))
            name = re.sub(r"^[^ ]*:\d+:\d+: ", "", each["name"])
            drawn.append(Mutant(len(drawn) + 1, area, each["file"], each["genre"], each["replacement"], name, start, end,
                                each["span"]["start"]["line"]))
    return drawn, totals


def offset(text, place):
    """The byte that a line and a column (both from 1) name."""
    lines = text.splitlines(keepends=True)
    return len("".join(lines[:place["line"] - 1]).encode()) + len(lines[place["line"] - 1][:place["column"] - 1].encode())


class Schema:
    """One source file with a branch for each of its mutants."""

    def __init__(self, text, mutants, constant):
        """The names in `constant` are functions that have to stay `const`."""
        # Imported here, so that the script can say that they are missing.
        import tree_sitter
        import tree_sitter_rust
        self.text, self.constant = text, constant
        parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_rust.language()))
        self.root = parser.parse(text).root_node
        # The changes of each node, by its range.
        self.changes = collections.defaultdict(list)
        for mutant in mutants:
            found = self.find(mutant)
            if found:
                for node, kind in found:
                    self.changes[node.start_byte, -node.end_byte, kind].append((mutant, node))

    def find(self, mutant):
        """The node that a mutant changes, and the kind of the change; before it the `const` that has to go."""
        node = self.root.descendant_for_byte_range(mutant.start, mutant.end)
        found, change = [], None
        while node and not change:
            if mutant.genre == "FnValue" and node.type == "function_item":
                change = node.child_by_field_name("body"), "body"
            elif mutant.genre == "BinaryOperator" and node.type in ("binary_expression", "compound_assignment_expr"):
                if node.child_by_field_name("operator").start_byte != mutant.start:
                    return None
                change = node, "expression"
            elif mutant.genre == "UnaryOperator" and node.type in ("unary_expression", "negative_literal"):
                change = node, "expression"
            elif mutant.genre == "MatchArm" and node.type == "match_arm":
                change = node.child_by_field_name("pattern"), "arm"
            elif mutant.genre == "MatchArmGuard" and node.type == "match_pattern":
                change = node.child_by_field_name("condition"), "expression"
            else:
                node = node.parent
        while node:
            if node.type in ("const_item", "static_item", "const_block", "macro_definition", "macro_invocation"):
                return None
            if node.type == "function_item":
                modifiers = [each for child in node.children if child.type == "function_modifiers" for each in child.children]
                words = [each for each in modifiers if each.type == "const"]
                if words and node.child_by_field_name("name").text.decode() in self.constant:
                    return None
                found += [(word, "const") for word in words]
            node = node.parent
        return [*found, change] if change else None

    def source(self, start, end):
        return self.text[start:end].decode()

    def render(self, start=0, end=None, but=None):
        """The text of a range with the branches in it, but without those of one node."""
        end = len(self.text) if end is None else end
        out, at = [], start
        for key in sorted(self.changes):
            first, last = key[0], -key[1]
            if at <= first and last <= end and key != but:
                out += [self.source(at, first), self.branches(key)]
                at = last
        return "".join(out) + self.source(at, end)

    def branches(self, key):
        """The text of a node with a branch for each of its mutants."""
        kind, changes = key[2], self.changes[key]
        node = changes[0][1]
        numbers = [mutant.number for mutant, _ in changes]
        start, end = node.start_byte, node.end_byte
        if kind == "const":
            return ""
        if kind == "body":
            returns = [f"/*<{m.number}*/if ::mutant::is({m.number}) {{ return {m.replacement}; }}/*>{m.number}*/" for m, _ in changes]
            return "{" + "".join(returns) + self.render(start + 1, end)
        if kind == "arm":
            guard = node.child_by_field_name("condition")
            off = " && ".join(f"/*<{n}*/!::mutant::is({n})/*>{n}*/" for n in numbers)
            if guard is None:
                return f"{self.source(start, end)} if {off}"
            return f"{self.source(start, guard.start_byte)}{off} && ({self.render(guard.start_byte, guard.end_byte)})"
        operator = node.child_by_field_name("operator")
        text = ""
        for mutant, _ in changes:
            if mutant.genre == "BinaryOperator":
                changed = self.source(start, operator.start_byte) + mutant.replacement + self.source(operator.end_byte, end)
            elif mutant.genre == "UnaryOperator":
                changed = mutant.replacement + self.source(start + 1, end)
            else:
                changed = mutant.replacement
            text += f"if ::mutant::is({mutant.number}) {{ /*<{mutant.number}*/{changed}/*>{mutant.number}*/ }} else "
        opening, closing = ("".join(f"/*{side}{n}*/" for n in numbers) for side in "[]")
        return f"{opening}({text}{{ {self.render(start, end, key)} }}){closing}"


def blamed(text, at, until):
    """Numbers of the mutants that an error between two bytes of the generated text concerns."""
    whole = text.encode()

    def regions(opening, closing):
        for mark in re.finditer(rb"/\*%s(\d+)\*/" % re.escape(opening), whole):
            yield mark.start(), whole.find(b"/*%s%s*/" % (closing, mark[1]), mark.end()), int(mark[1])

    branches, nodes = list(regions(b"<", b">")), list(regions(b"[", b"]"))
    within = {number for first, last, number in branches if first <= at and until <= last}
    if within:
        return within
    around = [(last - first, number) for first, last, number in nodes if first <= at and until <= last]
    # Nodes with several branches have marks of about the same length.
    around = {number for size, number in around if size <= min(around)[0] + 12}
    return around or {number for first, last, number in branches if first <= until and at <= last}


def prepare(tree, mutants):
    """Copies the repository; the files that did not change keep their times, so that cargo builds only the others."""
    mutated = {mutant.file for mutant in mutants}
    names = subprocess.run(["git", "ls-files", "-z"], check=True, capture_output=True).stdout.decode().split("\0")
    for name in filter(None, names):
        target = tree / name
        if name in mutated and target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if os.path.islink(name):
            target.unlink(missing_ok=True)
            target.symlink_to(os.readlink(name))
        elif not target.exists() or target.read_bytes().replace(DEPENDENCY, b"") != pathlib.Path(name).read_bytes():
            shutil.copy(name, target)
    crate = tree / "transfer/mutant"
    (crate / "src").mkdir(parents=True, exist_ok=True)
    (crate / "Cargo.toml").write_text('[package]\nname = "mutant"\nversion = "0.0.0"\nedition = "2024"\n')
    if not (crate / "src/lib.rs").exists():
        (crate / "src/lib.rs").write_text(SWITCH)
    for manifest in {tree / file.split("/src/")[0] / "Cargo.toml" for file in mutated}:
        text = manifest.read_bytes()
        if DEPENDENCY not in text:
            manifest.write_bytes(text.replace(b"[dependencies]\n", b"[dependencies]\n" + DEPENDENCY, 1))


def build(tree, mutants, environment, tests):
    """Compiles until no error is left. Returns the test programs and the mutants that compile."""
    packages = sorted({package for package, _, _ in tests})
    selected = [word for package in packages for word in ("-p", package)]
    cache = tree.parent / "do-not-compile.json"
    known = set(map(tuple, json.loads(cache.read_text()))) if cache.exists() else set()
    left, constant = {m.number: m for m in mutants if (m.file, m.line, m.name) not in known}, set()
    for step in range(60):
        texts, present = {}, set()
        for file in sorted({m.file for m in mutants}):
            schema = Schema(pathlib.Path(file).read_bytes(), [m for m in left.values() if m.file == file], constant)
            texts[file] = schema.render()
            present |= {int(n) for n in re.findall(r"/\*<(\d+)\*/", texts[file])}
            if (tree / file).read_text() != texts[file]:
                (tree / file).write_text(texts[file])
        left = {number: m for number, m in left.items() if number in present}
        command = ["cargo", "test", "--no-run", "--lib", "--test", "it", *selected] if any(t == "it" for _, t, _ in tests) else \
            ["cargo", "test", "--no-run", "--lib", *selected]
        run = subprocess.run([*command, "--message-format", "json"], cwd=tree, env=environment, capture_output=True, text=True)
        messages = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
        dropped, before = set(), len(constant)
        for message in (m["message"] for m in messages if m["reason"] == "compiler-message" and m["message"]["level"] == "error"):
            called = re.match(r"cannot call non-const .*`(?:.*::)?(\w+)(?:::<.*>)?`", message["message"])
            if called and called[1] != "is":
                constant.add(called[1])
                continue
            for span in message["spans"]:
                text = texts.get(span["file_name"])
                if text is not None and span["is_primary"]:
                    hit = blamed(text, span["byte_start"], span["byte_end"])
                    if not hit and "non-exhaustive patterns" in message["message"]:
                        hit = {m.number for m in left.values() if m.file == span["file_name"] and m.genre == "MatchArm"}
                    dropped |= hit
                    if not hit:
                        print(f"no mutant for the error: {message['message']} {span['file_name']}:{span['line_start']}", flush=True)
        print(f"build {step}: {len(left)} mutants, {len(dropped)} do not compile", flush=True)
        if run.returncode == 0:
            programs = {}
            for message in messages:
                if message.get("executable") and message.get("profile", {}).get("test"):
                    package = re.sub(r".*[/#]([a-z-]+)[@#].*", r"\1", message["package_id"].replace("#", "/", 1))
                    kind = "lib" if "lib" in message["target"]["kind"] else message["target"]["name"]
                    programs[pathlib.Path(message["manifest_path"]).parent, kind] = message["executable"]
            return programs, list(left.values())
        if not dropped and len(constant) == before:
            sys.exit(f"mutants: the copy does not compile:\n{run.stderr[-3000:]}")
        known |= {(left[number].file, left[number].line, left[number].name) for number in dropped}
        cache.write_text(json.dumps(sorted(known)))
        left = {number: m for number, m in left.items() if number not in dropped}
    sys.exit("mutants: too many rounds of compile errors")


def run_tests(number, program, directory, words, limits, environment):
    """Runs a test program with one mutant. Returns the outcome, seconds and output."""
    script = ('mount -t tmpfs -o size=1g tmpfs "$TMPDIR" && mount -o remount,bind,ro / && ulimit -t %d -v 16000000 && "$@"; exit $?' % limits[0])
    command = ["nice", "-n", "19", "chrt", "-i", "0", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
               "bash", "-c", script, "bash", program, *words]
    began = time.monotonic()
    process = subprocess.Popen(command, cwd=directory, env={**environment, "MUTANT": str(number)}, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        output, _ = process.communicate(timeout=limits[1])
        outcome = "missed" if process.returncode == 0 else "timeout" if process.returncode in (137, 152) else "caught"
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        outcome = "timeout"
    return outcome, time.monotonic() - began, output.decode(errors="replace")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("number", nargs="?", type=int, default=20)
    parser.add_argument("seed", nargs="?", type=int, default=1)
    parser.add_argument("--area", action="append", choices=list(AREAS))
    parser.add_argument("--only", help="comma-separated numbers of mutants to run")
    parser.add_argument("--minutes", type=float, default=240, help="starts no mutant after this time")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    os.chdir(pathlib.Path(__file__).resolve().parent.parent)
    for missing, is_missing in (("root", os.geteuid() != 0),
                                ("cargo install --locked cargo-mutants", shutil.which("cargo-mutants") is None),
                                ("pip install tree-sitter tree-sitter-rust", importlib.util.find_spec("tree_sitter_rust") is None)):
        if is_missing:
            print(f"mutants: NOT RUN: needs {missing}", file=sys.stderr)
            return
    out = pathlib.Path(os.environ.get("OUT", "target/mutants")).resolve()
    tree, scratch = out / "tree", out / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    environment = {"CARGO_TARGET_DIR": str(out / "build"), **os.environ, "TMPDIR": str(scratch), "CARGO_PROFILE_TEST_DEBUG": "none",
                   "CARGO_PROFILE_DEV_DEBUG": "none", "CARGO_INCREMENTAL": "1", "RUST_BACKTRACE": "0"}
    areas = options.area or list(AREAS)
    mutants, totals = draw(areas, options.number, options.seed)
    prepare(tree, mutants)
    tests = [test for area in areas for test in AREAS[area][2]]
    programs, compiled = build(tree, mutants, environment, tests)
    folders = {re.search(r'^name = "(.*)"', (folder / "Cargo.toml").read_text(), re.M)[1]: folder for folder, _ in programs}

    baseline = {}
    for test in sorted(set(tests)):
        package, target, words = test
        outcome, seconds, output = run_tests(0, programs[folders[package], target], folders[package], words.split(), (600, 600), environment)
        print(f"tests {package} {target} {words}: {seconds:.1f} s {outcome}", flush=True)
        if outcome != "missed":
            sys.exit(f"mutants: the tests fail without a mutant:\n{output[-3000:]}")
        baseline[test] = seconds

    began, results = time.monotonic(), []

    def judge(mutant):
        if time.monotonic() - began > options.minutes * 60:
            return mutant, "not reached", ""
        output = ""
        for package, target, words in AREAS[mutant.area][2]:
            limits = int(10 + 10 * baseline[package, target, words]), 60 + 20 * baseline[package, target, words]
            outcome, _, output = run_tests(mutant.number, programs[folders[package], target], folders[package],
                                           words.split(), limits, environment)
            if outcome != "missed":
                return mutant, outcome, output
        return mutant, "missed", output

    if options.only:
        wanted = {int(number) for number in options.only.split(",")}
        compiled = [m for m in compiled if m.number in wanted]
    # In the order of a shuffle, so that a run that ends early has mutants of all areas.
    random.Random(options.seed).shuffle(compiled)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for mutant, outcome, output in pool.map(judge, compiled):
            results.append((mutant, outcome))
            if outcome == "missed":
                print(f"    missed: {mutant.number} {mutant.file}:{mutant.line}: {mutant.name}", flush=True)
    (out / f"results-{areas[0]}.json").write_text(json.dumps([{**m._asdict(), "outcome": o} for m, o in results], indent=1))
    for area in areas:
        counts = collections.Counter(outcome for mutant, outcome in results if mutant.area == area)
        drawn = sum(mutant.area == area for mutant in mutants)
        ran = sum(counts.values())
        print(f"{area:10} {totals[area]} mutants in all, {drawn} drawn, {drawn - ran} do not compile, {counts['not reached']} not reached; "
              f"{counts['caught']} caught, {counts['timeout']} timeouts, {counts['missed']} missed")


main()
