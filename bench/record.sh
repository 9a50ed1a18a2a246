#!/bin/sh
# Runs the benchmark and writes a record of it, to be committed below bench/record/:
#
#     bench/record.sh core                        the whole table
#     bench/record.sh core --n 10M --rates 0.001  a part of it
#     bench/record.sh layouts
#     bench/record.sh ribbon                      the ribbon against other static filters
#     bench/record.sh cli                         the command line; installs its peers
#     bench/record.sh cold                        a ribbon file of which nothing is in memory
#     bench/record.sh server                      a server; against redis-server if that is installed
#
# A record says on which machine, when, from which sources and by which command its numbers came
# about. Run it on a calm machine; the load that it finds is recorded too.
set -eu
cd "$(dirname "$0")/.."

cargo build --release --package inbloom-cli
(cd bench && cargo build --release)
# What cannot be built is missing in the record, which says so.
test "${1:-}" != cli || bench/peers.sh || true
binary="${CARGO_TARGET_DIR:-target}/release/inbloom-bench"
record="bench/record/$(date -u +%Y-%m-%d)-$(echo "$*" | tr -s ' ,/' '-').txt"

commit() {
    git rev-parse --verify --quiet HEAD || echo "none yet"
    # The benchmark's own record does not make the sources dirty.
    test -z "$(git status --porcelain -- . ':!bench/record')" || echo "(with changes)"
}

# Under another name until the run is over: what was interrupted is no record.
echo "running; watch $record.part" >&2
trap 'rm -f "$record.part"' EXIT
{
    echo "date      $(date -u '+%Y-%m-%d %H:%M UTC')"
    echo "command   inbloom-bench $*"
    echo "commit    $(commit | tr '\n' ' ')"
    echo "processor $(lscpu | sed -n 's/^Model name: *//p'), $(nproc) cores"
    echo "features  $(lscpu | grep -o -w -e avx2 -e avx512f -e bmi2 | tr '\n' ' ')"
    lscpu | sed -n 's/^\(L[123][di]*\) cache:/\1/p' | while read -r name size; do
        printf '%-10s%s\n' "$name" "$size"
    done
    echo "memory    $(sed -n 's/^MemTotal: *//p' /proc/meminfo)"
    echo "pages     $(cat /sys/kernel/mm/transparent_hugepage/enabled)"
    echo "kernel    $(uname -sr)"
    echo "rustc     $(rustc --version), default target"
    echo "load      $(cut -d ' ' -f 1-3 /proc/loadavg)"
    echo
    "$binary" "$@"
    echo
    echo "load after the run $(cut -d ' ' -f 1-3 /proc/loadavg)"
} > "$record.part"
mv "$record.part" "$record"
echo "recorded in $record" >&2
