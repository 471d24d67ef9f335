#!/usr/bin/env bash
# attnlens on many SLURM nodes: a Ray head on the first, a Ray node on each of the others, and the
# run beside the head. Submit it from the folder that results should go to, with attnlens[ray]
# installed in ~/attnlens on a file system that all nodes share:
#
#     sbatch --nodes=4 docs/examples/slurm.sh --profile full
#
# The same command again goes on where a job that ran out of time stopped.
#SBATCH --job-name=attnlens
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --time=08:00:00
set -euo pipefail

bin=$HOME/attnlens/bin
export RAY_USAGE_STATS_ENABLED=0
# On a disk of the node: thousands of processes would wait for a shared one. Compiled code is executed,
# so the folder must be yours alone: attnlens creates it on each node, for you only, with a name that
# nobody can guess, and refuses a folder that others can write to.
export ATTNLENS_CACHE
ATTNLENS_CACHE=$(mktemp --dry-run "${TMPDIR:-/tmp}/attnlens-XXXXXXXXXXXXXXXX")
trap 'srun --overlap --ntasks-per-node=1 rm -rf "$ATTNLENS_CACHE"' EXIT

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=$(srun --nodes=1 --ntasks=1 -w "${nodes[0]}" hostname --ip-address | awk '{print $1}')
port=$((20000 + SLURM_JOB_ID % 10000))  # two jobs on one node do not meet

srun --nodes=1 --ntasks=1 -w "${nodes[0]}" "$bin/ray" start --head --block \
  --node-ip-address="$head" --port="$port" --num-cpus="$SLURM_CPUS_PER_TASK" \
  --include-dashboard=false &
sleep 15
for node in "${nodes[@]:1}"; do
  srun --nodes=1 --ntasks=1 -w "$node" "$bin/ray" start --block \
    --address="$head:$port" --num-cpus="$SLURM_CPUS_PER_TASK" &
done

srun --overlap --nodes=1 --ntasks=1 -w "${nodes[0]}" \
  "$bin/attnlens" verify --engine ray --address "$head:$port" "$@"
