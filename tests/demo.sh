#!/usr/bin/env bash
# The README's first command, as a newcomer runs it, and what its output must say whatever the machine is like: both
# transports, books that agree, every line accounted for, validity said first. How fast it was is not judged here.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mktemp -d)
# Rings in a folder of this run's own, so that another run on this machine cannot be taken for what this one left behind.
BOOKCAST_SHM_DIR=$(mktemp -d -p /dev/shm)
export BOOKCAST_SHM_DIR
trap 'rm -rf "$out" "$BOOKCAST_SHM_DIR"' EXIT
cargo build --locked --offline --release -p feeds-replay
"${CARGO_TARGET_DIR:-target}/release/feeds-replay" demo --seconds 5 | tee "$out/text"
for expected in '^shm: (VALID|INVALID)' '^udp: (VALID|INVALID)' 'shm: .* nothing unaccounted for' 'udp: .* nothing unaccounted for' \
  'shm: books of [0-9]+ instruments: [0-9]+ digests compared, all agree' 'udp: books of [0-9]+ instruments: [0-9]+ digests compared, all agree'; do
  grep -qE "$expected" "$out/text" || { echo "demo.sh: the demo does not say /$expected/" >&2; exit 1; }
done
# Validity stands before the first number of the table.
[ "$(grep -nE '^(shm|udp): (VALID|INVALID)' "$out/text" | head -1 | cut -d: -f1)" -lt "$(grep -n 'p99.9 ' "$out/text" | grep latency | cut -d: -f1)" ]
if [ -n "$(ls "$BOOKCAST_SHM_DIR")" ]; then echo "demo.sh: rings were left behind" >&2; exit 1; fi
