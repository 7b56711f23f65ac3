#!/bin/bash
# A study on Slurm: a Ray cluster for as long as the allocation lasts. Submit it from the repository, on a shared disk:
#
#   sbatch launch/cluster/slurm.sh --space toy_mcinfonce --scale paper --name study
#
# Arguments are those of launch/grid.py. Ended by the time limit, the same command goes on. Lines to look at: EDIT. A
# store (s3://...) cannot be $STORAGE here: the token is handed to the nodes by way of the shared disk.
#SBATCH --job-name=pcl
#SBATCH --nodes=4                   # EDIT
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=1           # EDIT
#SBATCH --cpus-per-task=8           # EDIT
#SBATCH --time=12:00:00             # EDIT
#SBATCH --signal=B:TERM@120         # two minutes before the end: the study records what it has
#SBATCH --output=pcl-%j.log
set -euo pipefail
umask 077

python=${PYTHON:-$PWD/.venv/bin/python}                            # EDIT: seen by all nodes
storage=${STORAGE:-$PWD/runs}                                      # EDIT: the same, and on a shared disk
tracking=(${MLFLOW_TRACKING_URI:+--tracking-uri "$MLFLOW_TRACKING_URI"}) # EDIT: the server; none: a database in $storage
port=${RAY_PORT:-$((20000 + SLURM_JOB_ID % 20000))}                # others may have a cluster on the same node

export RAY_health_check_timeout_ms=3000                            # a silent node is given up in 30 s, not in 65
export RAY_USAGE_STATS_ENABLED=0 RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$storage/.ray-token-$SLURM_JOB_ID"
mkdir -p "$storage"
"$python" -c 'import secrets; print(secrets.token_hex(32), end="")' > "$RAY_AUTH_TOKEN_PATH"
trap 'rm -f "$RAY_AUTH_TOKEN_PATH"' EXIT

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
on() { srun --overlap --nodes=1 --ntasks=1 --nodelist="$1" "${@:2}"; }
head=$(on "${nodes[0]}" hostname --ip-address | awk '{print $1}')
resources=(--num-cpus="${SLURM_CPUS_PER_TASK:-1}" --num-gpus="${SLURM_GPUS_ON_NODE:-0}")
ray=("$python" -m ray.scripts.scripts start --block --disable-usage-stats)

on "${nodes[0]}" "${ray[@]}" --head --node-ip-address="$head" --port="$port" --dashboard-host=127.0.0.1 "${resources[@]}" &
until (exec 3<> "/dev/tcp/$head/$port") 2> /dev/null; do sleep 1; done
for node in "${nodes[@]:1}"; do
    on "$node" "${ray[@]}" --address="$head:$port" "${resources[@]}" &
done
# The study asks for GPUs if there are any when it starts, and looks whether all nodes share $storage: let them all come.
all_there='import ray, sys; ray.init(address=sys.argv[1]); sys.exit(len(ray.nodes()) < int(sys.argv[2]))'
until "$python" -c "$all_there" "$head:$port" "${#nodes[@]}" > /dev/null 2>&1; do sleep 2; done

study=("$@") name=""
for ((i = 1; i < $#; i++)); do if [ "${!i}" = --name ]; then j=$((i + 1)) name=${!j}; fi; done
if [ -n "$name" ] && [ -e "$storage/$name/study.json" ]; then study=(--resume "$name"); fi
"$python" launch/grid.py "${study[@]}" --address "$head:$port" --storage "$storage" "${tracking[@]}" &
grid=$!
trap 'kill -TERM $grid' TERM
code=0
wait $grid || code=$?
if kill -0 $grid 2> /dev/null; then wait $grid || code=$?; fi      # the first wait ends with the signal
exit $code
