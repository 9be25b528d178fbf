"""Joins of two remote tables by two programs in turn, with 4G and a tenth of the data; in the lab shell, as in
../2026-11-27-join-path/run.sh:

    pairs.py TICKET ONE OTHER
"""

import json
import subprocess
import sys

ticket, *programs = sys.argv[1:]
places = [word for name in "ab" for word in ("--ticket", ticket, f"sabul://far:4900/{name}.parquet")]
for memory in ("4G", "205M"):
    for program in programs * 2:
        command = [program, "join", "--json", *places, "--on", "k", "--memory", memory, "-o", "o.parquet"]
        document = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        print(program, memory, f"{document['seconds']:.1f} s, first row {document['first_row_s']:.2f} s", flush=True)
