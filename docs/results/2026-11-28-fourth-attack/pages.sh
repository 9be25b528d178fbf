#!/bin/bash
# Peak memory of joins of the files of pages.py with 1,000 keys: join.sh SABUL DIRECTORY
for name in page pages columns prefix list usual; do
  log=$(mktemp)
  ( ulimit -v 12000000; /usr/bin/env python3 - "$1" "$2/small.parquet" "$2/$name.parquet" >"$log" 2>&1 <<'P'
import os, resource, subprocess, sys, time
began = time.monotonic()
command = [sys.argv[1], "join", *sys.argv[2:], "--on", "k", "--memory", "256M", "-o", "-"]
done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=300)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
lines = done.stderr.decode(errors="replace").strip().splitlines() or [""]
print(f"exit {done.returncode}, {peak} MiB, {time.monotonic() - began:.1f} s: {lines[-1][:240]}")
P
  )
  echo "$name.parquet ($(stat -c %s "$2/$name.parquet") bytes): $(cat "$log")"
  rm "$log"
done
