#!/bin/sh
# Slurm's srun, plain and recorded: a cluster of this one host, started for this and ended by its pids, in a temporary folder.
#
#     bench/slurm.sh [TASKS]
#
# Builds the release binary first, and installs Slurm and munge when they are missing; needs root. The tasks are shells
# that say their rank, MPI programs (tests/programs/ranks.c) and a task that fails. Each must do the same plainly, with
# every task joining by itself, and with srun inside the recording. Of each tape: nothing lost or out of order, and the
# ranks. Ends with an error when anything is wrong.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
tasks=${1:-4}
missing=
for pair in slurmctld:slurmctld slurmd:slurmd srun:slurm-client munged:munge; do
    command -v "${pair%%:*}" >/dev/null 2>&1 || missing="$missing ${pair##*:}"
done
if [ -n "$missing" ]; then
    # shellcheck disable=SC2086
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing slurm-wlm-basic-plugins; } >/dev/null
fi
(cd "$root" && cargo build --release --quiet)
heaptape=${CARGO_TARGET_DIR:-$root/target}/release/heaptape
work=$(mktemp -d)
started=
finish() {
    # The daemons are children of this shell.
    for pid in $started; do kill "$pid" 2>/dev/null || true; done
    for pid in $started; do wait "$pid" 2>/dev/null || true; done
    rm -rf "$work"
}
trap finish EXIT
chmod 711 "$work"
cd "$work"
mkdir -m 755 munge
mkdir state spool
dd if=/dev/urandom of=munge/key bs=1024 count=1 2>/dev/null
chmod 600 munge/key
host=$(hostname)
cat >slurm.conf <<CONF
ClusterName=bench
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
CredType=cred/munge
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=pmi2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=$tasks RealMemory=100 State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
CONF
export SLURM_CONF="$work/slurm.conf"
munged --foreground --force --key-file="$work/munge/key" --socket="$work/munge/socket" --pid-file="$work/munge/pid" \
    --log-file="$work/munge/log" --seed-file="$work/munge/seed" >munge.out 2>&1 &
started="$!"
while [ ! -S munge/socket ]; do sleep 0.1; kill -0 "$started" || { cat munge.out; exit 1; }; done
slurmctld -D >slurmctld.out 2>&1 &
started="$started $!"
slurmd -D -N "$host" >slurmd.out 2>&1 &
started="$! $started"
tries=0
until sinfo -h -o %t 2>/dev/null | grep -q idle; do
    tries=$((tries + 1))
    if [ $tries -gt 60 ]; then
        echo "Slurm does not start here:"
        tail -n 5 slurmctld.out slurmd.out
        exit 1
    fi
    sleep 0.5
done

failed=0
check() { # NAME, PLAIN STATUS; the tapes are in tapes/
    verdict=ok
    [ "$status" = "$2" ] || verdict="status $status and not $2"
    cmp -s plain recorded || verdict="other output"
    count=0
    for file in tapes/*.tape; do
        count=$((count + 1))
        "$heaptape" info --json --verify "$file" >info.json || verdict="no tape"
        for fact in complete:true lost:0 order_faults:0; do
            grep -q "^  \"${fact%:*}\": ${fact#*:}," info.json || verdict="not $fact"
        done
        ranks=$(grep -c '^ *"rank": [0-9]' info.json || true)
    done
    [ "$count" = 1 ] || verdict="$count tapes"
    [ "$ranks" -ge "$tasks" ] || verdict="$ranks ranks"
    [ "$verdict" = ok ] || { failed=1; sed 's/^/    /' errors; }
    printf '%-28s %s\n' "$1" "$verdict"
    rm -rf tapes
}
try() { # NAME COMMAND…
    name=$1
    shift
    wanted=0 status=0
    srun -n "$tasks" "$@" >plain 2>errors || wanted=$?
    sort -o plain plain
    srun -n "$tasks" "$heaptape" record --quiet --join -o tapes -- "$@" >recorded 2>errors || status=$?
    sort -o recorded recorded
    check "$name, --join" "$wanted"
    mkdir tapes
    status=0
    "$heaptape" record --quiet -o tapes/job.tape -- srun -n "$tasks" "$@" >recorded 2>errors || status=$?
    sort -o recorded recorded
    check "$name, record" "$wanted"
}

# shellcheck disable=SC2016
try "shells" sh -c 'echo "rank $SLURM_PROCID of $SLURM_NTASKS"'
# shellcheck disable=SC2016
try "a task that fails" sh -c 'exit $((SLURM_PROCID == 1 ? 7 : 0))'
for mpi in openmpi mpich; do
    command -v "mpicc.$mpi" >/dev/null 2>&1 || continue
    "mpicc.$mpi" -O1 -g -fno-builtin -pthread -o "ranks.$mpi" "$root/tests/programs/ranks.c" -ldl
    for way in pmi2 pmix; do
        srun --mpi=$way -n "$tasks" "./ranks.$mpi" exchange 2>/dev/null | grep -q "of $tasks:" || continue
        export SLURM_MPI_TYPE=$way
        try "$mpi by $way" "./ranks.$mpi" exchange
        break
    done
done
exit "$failed"
