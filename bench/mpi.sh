#!/bin/sh
# hpcc, the HPC Challenge benchmark from Debian, on four ranks: plain, recorded with the launcher inside the recording, and
# with each rank joining by itself, and held to a strict limit, with jemalloc preloaded too; over the transports that Open MPI
# has here.
#
#     bench/mpi.sh [RANKS]
#
# Builds the release binary first, and installs hpcc and Open MPI when they are missing and we are root. For each run it
# prints the time and what hpcc says of itself; of each tape the events, and that nothing was lost or out of order. Ends
# with an error when a run fails a check that the plain run passes.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
ranks=${1:-4}
for pair in hpcc:hpcc mpirun.openmpi:openmpi-bin; do
    command -v "${pair%%:*}" >/dev/null 2>&1 && continue
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${pair##*:}"; } >/dev/null
done
(cd "$root" && cargo build --release --quiet)
heaptape=${CARGO_TARGET_DIR:-$root/target}/release/heaptape
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# The matrix is made small enough for a minute a run: lines 6 (N), 11 and 12 (the grid of ranks).
grid=1
[ $((ranks % 2)) = 0 ] && grid=2
sed -e '6s/^[0-9 ]*/600 /' -e "11s/^[0-9 ]*/$grid /" -e "12s/^[0-9 ]*/$((ranks / grid)) /" \
    /usr/share/doc/hpcc/examples/_hpccinf.txt >hpccinf.txt

jemalloc=$(find /usr/lib -name libjemalloc.so.2 2>/dev/null | head -n 1)
failed=0
run() { # NAME COMMAND…
    name=$1
    shift
    rm -f hpccoutf.txt
    start=$(date +%s.%N)
    status=0
    "$@" >stdout 2>stderr || status=$?
    seconds=$(echo "$start $(date +%s.%N)" | awk "{ print \$2 - \$1 }")
    passed=$(grep -c passed hpccoutf.txt || true)
    printf '%-24s status %d, %6.1f s, %d checks passed\n' "$name" "$status" "$seconds" "$passed"
    if [ "$status" != 0 ] || ! grep -q '^Success=1' hpccoutf.txt || grep -q '[1-9] tests completed and failed' hpccoutf.txt; then
        failed=1
        sed 's/^/    /' stderr
    fi
}
tape() { # FILE
    "$heaptape" info --verify "$1" | sed -n -e '/^It holds/s/^/    /p' -e '/^Lost/s/^/    /p'
    "$heaptape" info --verify --json "$1" >info.json
    for fact in complete:true lost:0 order_faults:0; do
        grep -q "^  \"${fact%:*}\": ${fact#*:}," info.json || failed=1
    done
    rm -f "$1"
}

for transport in "ob1 vader,self" "ob1 tcp,self" "ucx -"; do
    pml=${transport% *} btl=${transport#* }
    options="--oversubscribe -n $ranks --mca pml $pml"
    if [ "$btl" = - ]; then
        options="$options --mca opal_common_ucx_tls any --mca opal_common_ucx_devices any"
    else
        options="$options --mca btl $btl"
    fi
    # shellcheck disable=SC2086
    {
        run "$pml $btl, plain" mpirun.openmpi $options hpcc
        run "$pml $btl, record" "$heaptape" record --quiet -o job.tape -- mpirun.openmpi $options hpcc
        tape job.tape
        run "$pml $btl, --join" mpirun.openmpi $options "$heaptape" record --quiet --join -o tapes -- hpcc
        for file in tapes/*; do tape "$file"; done
        # Nothing but "within" has status 0 here.
        run "$pml $btl, limit" "$heaptape" limit 6GB --strict --quiet --json limit.json -- mpirun.openmpi $options hpcc
        if [ -n "$jemalloc" ]; then
            run "$pml $btl, limit, jemalloc" "$heaptape" limit 6GB --strict --quiet --json limit.json -- \
                mpirun.openmpi $options -x LD_PRELOAD="$jemalloc" hpcc
        fi
    }
done
exit "$failed"
