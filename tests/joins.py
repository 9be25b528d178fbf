#!/usr/bin/env python3
"""Drawn joins of `sabul join` against DuckDB: formats, types, skew, NULLs, budgets, kills of a source.

    tests/joins.py [JOINS [SEED]]      40 joins from seed 1

Each join draws tables (Parquet with drawn row groups, or CSV; one file or several), a key type, a join type, a condition,
a selection, a memory budget, and which tables come from a `sabul serve` on loopback. Every fourth join kills the server of
a table at a drawn moment. With --retry the server is started again and the result must be right; without, the result
must be right or absent. DuckDB computes the expected rows: both results are compared as multisets. JOINS_OUT is a file for one
line of JSON for each join. SABUL is the program. DuckDB is installed from the package index into a virtual environment in
JOINS_VENV, which the first run makes.
"""

import collections
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

SABUL = os.path.abspath(os.environ.get("SABUL", "target/debug/sabul"))
VENV = pathlib.Path(os.environ.get("JOINS_VENV", pathlib.Path(tempfile.gettempdir()) / f"sabul-joins-{os.getuid()}"))
# A join takes less than a second, a killed join a few more.
SECONDS_MAX = 120
# SQL types of the key in tables A and B: equal, or with a lossless common type.
KEYS = [("BIGINT", "BIGINT"), ("INTEGER", "BIGINT"), ("SMALLINT", "UBIGINT"), ("DOUBLE", "DOUBLE"), ("FLOAT", "DOUBLE"),
        ("VARCHAR", "VARCHAR"), ("DECIMAL(9,2)", "DECIMAL(18,4)"), ("DATE", "DATE")]
KEYS_OF_KILLS = [KEYS[0], KEYS[1], KEYS[5], KEYS[6]]


def with_duckdb():
    """Runs this script with DuckDB."""
    try:
        import duckdb
        return duckdb
    except ImportError:
        python = VENV / "bin" / "python"
        if os.environ.get("JOINS_INSTALLED"):
            raise
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "duckdb"], check=True)
        os.environ["JOINS_INSTALLED"] = "1"
        os.execv(python, [python, *sys.argv])


duckdb = with_duckdb()


class Server:
    """A server of one table."""

    def __init__(self, root, log):
        self.root, self.log, self.ticket = root, log, root.parent / f"{root.name}.ticket"
        self.start()

    def start(self):
        new = self.ticket.with_suffix(".new")
        self.process = subprocess.Popen([SABUL, "serve", "--root", self.root, "--listen", "127.0.0.1:0", "--ticket-file", new],
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + 30
        while not new.exists():
            assert self.process.poll() is None and time.monotonic() < deadline, "the server did not start"
            time.sleep(0.01)
        new.replace(self.ticket)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Case:
    def __init__(self, seed, work, log):
        self.seed, self.work, self.log, self.draw = seed, work, log, random.Random(seed)
        draw = self.draw
        self.database = duckdb.connect()
        # A drawn join is far smaller; a mistake in the draw must not take the memory of the machine.
        self.database.execute("SET memory_limit = '2GB'")
        self.database.execute("SET threads = 1")
        # Its default is a directory in the current directory, which stays after a kill.
        self.database.execute(f"SET temp_directory = '{work / 'duckdb'}'")
        self.kind = draw.choice(["inner", "inner", "left", "anti"])
        self.tables = 3 if self.kind == "inner" and draw.random() < 0.3 else 2
        self.keys = draw.choice([1, 1, 2])
        self.kills = seed % 4 == 0
        self.retries = draw.random() < 0.7
        # Tables of joins with a kill are larger, so their keys need more distinct values.
        self.types = draw.choice(KEYS_OF_KILLS if self.kills else KEYS)
        self.servers, self.places = [], []
        is_csv = [self.types[0] in ("BIGINT", "VARCHAR") and draw.random() < 0.4 for _ in range(self.tables)]
        if self.types[0] == "VARCHAR" or True in is_csv:
            self.types = (self.types[0],) * 2
        for at in range(self.tables):
            self.table(at, is_csv[at])

    def table(self, at, is_csv):
        """Makes a table in DuckDB, its files, and its server if it is remote."""
        draw, name = self.draw, "abc"[at]
        rows = draw.choice([0, 1, 200, 3000, 20000]) if not self.kills else 100_000
        if is_csv:
            # Types are inferred from the content, so there must be some.
            rows = max(rows, 200)
        keys = max(draw.choice([rows // 2, rows, rows * 3]), 1)
        if self.tables == 3:
            keys = max(keys, 2000)
        if draw.random() < 0.3 and not self.kills:
            # One key has a share of the rows.
            share = draw.choice([2, 10]) if rows <= 3000 and self.tables == 2 else 200
            number = f"CASE WHEN random() < {1 / share} THEN 7 ELSE (random() * {keys})::BIGINT END"
        else:
            number = f"(random() * {keys})::BIGINT"
        sql_type = self.types[min(at, 1)]
        value = {"VARCHAR": "'k' || n", "DATE": "DATE '2000-01-01' + (n % 20000)::INTEGER", "SMALLINT": "n % 30000",
                 "DOUBLE": f"CASE n % {max(rows // 4, 50)} WHEN 0 THEN 'NaN'::DOUBLE WHEN 1 THEN -0.0 WHEN 2 THEN 0.0 ELSE n / 2.0 END"}
        value = value.get(sql_type, "n % 30000" if "SMALLINT" in self.types else "n")
        if "DECIMAL" in sql_type:
            value = "(n % 90000) / 4.0"
        key = f"CASE WHEN random() < 0.03 THEN NULL ELSE ({value})::{sql_type} END"
        self.database.execute(f"SELECT setseed({draw.random()})")
        self.database.execute(f"CREATE TABLE {name} AS SELECT {key} AS k, (random() * 3)::INTEGER AS k2, i AS {name}_id, "
                              f"(random() * 100)::INTEGER AS v, 'text' || (i % 97) AS t FROM "
                              f"(SELECT i, {number} AS n FROM range({rows}) r(i))")
        root = self.work / f"root{at}"
        folder = root / name
        folder.mkdir(parents=True)
        parts = draw.choice([1, 1, 3])
        for part in range(parts):
            query = f"SELECT * FROM {name} WHERE {name}_id % {parts} = {part}"
            if is_csv:
                self.database.execute(f"COPY ({query}) TO '{folder}/{part}.csv' (HEADER)")
            else:
                codec = draw.choice(["snappy", "zstd", "uncompressed"])
                self.database.execute(f"COPY ({query}) TO '{folder}/{part}.parquet' (ROW_GROUP_SIZE "
                                      f"{draw.choice([2048, 10000, 122880])}, COMPRESSION {codec})")
        is_remote = draw.random() < 0.6 or (self.kills and at == 0)
        if not is_remote:
            self.places.append([str(folder)])
            return
        server = Server(root, self.log)
        self.servers.append(server)
        self.places.append(["--ticket", str(server.ticket), f"sabul:///{name}"])

    def plan(self):
        """Draws the command, and the same request in SQL."""
        draw, names = self.draw, "abc"[:self.tables]
        on = ["k", "k2"][:self.keys]
        columns = {"a": ["v", "t"], "b": ["v", "t"], "c": ["v", "t"]}
        shown = names if self.kind != "anti" else names[:1]
        select = on + [f"{name}.{name}_id" for name in shown]
        select += [f"{name}.{column}" for name in shown for column in columns[name] if draw.random() < 0.3]
        flags = ["--on", ",".join(on), "--type", self.kind, "--select", ",".join(select)]
        terms = []
        for name in shown:
            if draw.random() < 0.3:
                term = draw.choice(["{t}.v < {n}", "({t}.v >= {n} OR {t}.t = 'text5')", "NOT {t}.v <= {n}", "{t}.t IS NOT NULL",
                                    "{t}.v < {n}.5", "{t}.v IS NULL", "{t}.k IS NOT NULL"])
                terms.append(term.format(t=name, n=draw.randrange(100)))
        if len(shown) > 1 and draw.random() < 0.25:
            term = draw.choice(["(a.v < {n} OR b.v > {m})", "NOT (a.v < {n} AND b.t IS NOT NULL)", "(b.v IS NULL OR a.t = 'text7')"])
            terms.append(term.format(n=draw.randrange(100), m=draw.randrange(100)))
        if self.types[0] == "BIGINT" and draw.random() < 0.2:
            terms.append(f"k < {draw.randrange(1, 4000)}")
        if terms:
            flags += ["--where", " AND ".join(terms)]
        bytes_in = sum(path.stat().st_size for path in self.work.rglob("*") if path.suffix in (".csv", ".parquet"))
        tenth = max(bytes_in // 10, 1)
        # With one byte each batch is written by itself, which takes half a minute for the larger tables.
        self.memory = draw.choice([tenth if self.kills else 1, tenth, tenth, 1 << 30])
        flags += ["--memory", str(self.memory)]
        # The condition is the same text in SQL, except for a key without its table.
        where = " AND ".join(re.sub(r"^k ", "a.k ", term) for term in terms) or "true"
        output = [f"{'a.' + item if '.' not in item else item}" for item in select]
        equal = lambda name: " AND ".join(f"a.{key} = {name}.{key}" for key in on)
        if self.kind == "anti":
            sql = f"SELECT {', '.join(output)} FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE {equal('b')}) AND {where}"
        else:
            word = "LEFT JOIN" if self.kind == "left" else "JOIN"
            joins = " ".join(f"{word} {name} ON {equal(name)}" for name in names[1:])
            sql = f"SELECT {', '.join(output)} FROM a {joins} WHERE {where}"
        return flags, sql

    def difference(self, sql, path):
        """Returns whether both multisets of rows differ, and the expected number of rows."""
        # Values are compared as text: NaN equals NaN, and the sign of zero is that of table A on both sides. The sums of
        # two hashes of the rows stand for the multiset, since EXCEPT ALL of millions of rows needs gigabytes.
        query = ("SELECT count(*), sum(hash(r)::HUGEINT), sum(hash('x' || r)::HUGEINT) FROM "
                 "(SELECT row(columns(*)::VARCHAR)::VARCHAR AS r FROM {} t)")
        expected = self.database.execute(query.format(f"({sql})")).fetchone()
        found = self.database.execute(query.format(f"read_parquet('{path}')")).fetchone()
        return expected != found, expected[0]

    def run(self):
        flags, sql = self.plan()
        out = self.work / "out.parquet"
        command = [SABUL, "join", *[word for place in self.places for word in place], *flags, "-o", str(out), "--json"]
        if self.kills and self.retries:
            command += ["--retry", "60"]
        record = {"seed": self.seed, "type": self.kind, "tables": self.tables, "key": "/".join(self.types), "keys": self.keys,
                  "remote": len(self.servers), "memory": self.memory, "killed": None,
                  "where": flags[flags.index("--where") + 1] if "--where" in flags else None}
        started = time.monotonic()
        running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            if self.kills:
                time.sleep(self.draw.uniform(0.02, 0.9))
                record["killed"] = "late" if running.poll() is not None else "retried" if self.retries else "final"
                server = self.draw.choice(self.servers)
                server.kill()
                if self.retries:
                    time.sleep(self.draw.uniform(0, 0.5))
                    server.start()
            stdout, stderr = running.communicate(timeout=SECONDS_MAX)
        finally:
            running.kill()
            running.wait()
        assert stdout, (record, " ".join(command), running.returncode, stderr)
        document = json.loads(stdout)
        record.update(exit=running.returncode, seconds=round(time.monotonic() - started, 3), rows=document["rows"],
                      first_row_s=document["first_row_s"], spilled_bytes=document["spilled_bytes"])
        text = (" ".join(command), sql, stderr)
        if running.returncode != 0:
            assert record["killed"] == "final", (record, *text)
            assert not out.exists() and stderr.strip(), (record, *text)
        else:
            differs, rows = self.difference(sql, out)
            assert not differs and rows == document["rows"], (record, rows, *text)
        left = [path.name for path in self.work.iterdir() if path.name.startswith(".sabul-join")]
        assert not left, (record, left)
        return record

    def stop(self):
        for server in self.servers:
            server.kill()
        self.database.close()


def main():
    joins, first = (int(sys.argv[at]) if len(sys.argv) > at else default for at, default in ((1, 40), (2, 1)))
    counts, spilled, out = collections.Counter(), 0, os.environ.get("JOINS_OUT")
    lines = open(out, "w", encoding="utf-8") if out else None
    for seed in range(first, first + joins):
        with tempfile.TemporaryDirectory(prefix="sabul-joins-") as work, tempfile.TemporaryFile() as log:
            case = Case(seed, pathlib.Path(work), log)
            try:
                record = case.run()
            finally:
                case.stop()
        counts[(record["killed"], record["exit"] == 0)] += 1
        spilled += record["spilled_bytes"] > 0
        if lines:
            print(json.dumps(record), file=lines, flush=True)
    assert joins < 40 or spilled > joins // 4, f"only {spilled} joins spilled"
    kills = ", ".join(f"{count} killed {way} {'complete' if is_done else 'refused'}"
                      for (way, is_done), count in sorted(counts.items(), key=str) if way)
    print(f"joins: {joins} equal DuckDB {duckdb.__version__} or were refused; {spilled} spilled; {kills}")


if __name__ == "__main__":
    main()
