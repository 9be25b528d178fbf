#!/bin/bash
# Workers of a sabul queue as a Slurm array: each task takes jobs until none waits.
#
#   sbatch slurm.sh
#
# Slurm decides where and when workers run; the queue decides which job a worker takes. Two minutes before the time limit
# Slurm sends SIGTERM. The worker then takes no further job, has a minute to end the running ones, and returns the others. A
# task that is killed loses no job: another worker takes its jobs after the lease.
#SBATCH --job-name=sabul-workers
#SBATCH --array=1-4
#SBATCH --cpus-per-task=2
#SBATCH --time=08:00:00
#SBATCH --signal=B:TERM@120
#SBATCH --requeue

set -u
# A file with mode 0600 in the shared home directory: postgres://sabul:SECRET@localhost/queue
export SABUL_QUEUE_STORE="$HOME/.config/sabul/queue-store"
# Files of the worker; its locks need a local disk.
export XDG_STATE_HOME="${TMPDIR:-/tmp}/sabul-$SLURM_JOB_ID"
mkdir -p -m 700 "$XDG_STATE_HOME"

# The signal reaches this shell, which passes it on and waits for the end of the worker.
sabul queue run --drain --jobs 2 --grace 1m --worker "slurm-$SLURM_JOB_ID" &
worker=$!
trap 'kill -TERM "$worker"' TERM
wait "$worker"
code=$?
if kill -0 "$worker" 2>/dev/null; then
    wait "$worker"
    code=$?
fi
# 130: the worker has returned its jobs.
[ "$code" -eq 130 ] && code=0
exit "$code"
