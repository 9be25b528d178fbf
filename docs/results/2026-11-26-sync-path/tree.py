#!/usr/bin/env python3
"""Draws a tree, or changes a share of its entries in every way: tree.py make DIR ENTRIES | tree.py change DIR PERCENT SEED"""

import os
import pathlib
import random
import shutil
import sys


def make(root, count):
    draw = random.Random(1)
    folders = [root]
    for number in range(count):
        parent = draw.choice(folders)
        if number % 10 == 0:
            folder = parent / f"d{number}"
            folder.mkdir()
            folders.append(folder)
        elif number % 50 == 1:
            (parent / f"l{number}").symlink_to("nowhere")
        else:
            size = draw.choice([0, 100, 2000, 4000, 8000])
            (parent / f"f{number}").write_bytes(draw.randbytes(size))


def change(root, percent, seed):
    draw = random.Random(seed)
    entries = sorted(root.rglob("*"))
    for path in draw.sample(entries, len(entries) * percent // 100):
        if not os.path.lexists(path):
            continue
        kind = draw.randrange(6)
        if path.is_symlink():
            path.unlink()
            path.symlink_to(f"changed{kind}")
        elif path.is_dir():
            if kind == 0:
                path.rename(path.with_name(path.name + "-renamed"))
            elif kind == 1 and not any(path.iterdir()):
                path.rmdir()
            else:
                path.chmod(0o750)
        elif kind == 0:
            path.unlink()
        elif kind == 1:
            path.rename(path.with_name(path.name + "-renamed"))
        elif kind == 2:
            path.chmod(0o600)
        elif kind == 3:
            os.utime(path, (seed, seed))
        else:
            path.write_bytes(draw.randbytes(max(path.stat().st_size + draw.choice([0, 1, 100]), 1)))
    for number in range(len(entries) * percent // 1000):
        (root / f"new{seed}-{number}").write_bytes(draw.randbytes(4000))


if __name__ == "__main__":
    action, name, number = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
    if action == "make":
        shutil.rmtree(name, ignore_errors=True)
        name.mkdir(parents=True)
        make(name, number)
    else:
        change(name, number, int(sys.argv[4]))
