#!/bin/sh
# Installs the programs that 'inbloom-bench cli' is raced against into cargo's target folder, and
# does nothing where they are there already. Exact versions: a recorded run says what it was
# measured against.
set -u
cd "$(dirname "$0")/.."

root="${CARGO_TARGET_DIR:-target}/peers"
missing=""
for peer in runiq@2.1.0 huniq@2.7.0; do
    name="${peer%@*}"
    version="${peer#*@}"
    case "$("$root/bin/$name" --version 2> /dev/null)" in
        *"$version"*) continue ;;
    esac
    # --locked: with the dependencies that its authors released it with.
    cargo install --locked --quiet --root "$root" "$peer" || missing="$missing $peer"
done
if [ -n "$missing" ]; then
    echo "could not be built, for the reasons above:$missing; the benchmark runs without" >&2
    exit 1
fi
