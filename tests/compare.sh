#!/usr/bin/env bash
# tests/compare.sh [N] - `feeds-replay compare` of this build with itself, N times (20 by default): no false alarm; and with 5 %
# more work given to one side, N times: found in at least 19 of 20. Not part of all.sh: it takes a quarter of an hour.
set -euo pipefail
cd "$(dirname "$0")/.."
n=${1:-20}
cargo build --locked --quiet --release -p feeds-replay
program=${CARGO_TARGET_DIR:-target}/release/feeds-replay
alarms=0 found=0 undecided=0
for ((i = 0; i < n; i++)); do
  code=0; "$program" compare "$program" "$program" >/tmp/compare.$$ || code=$?
  tail -n 2 /tmp/compare.$$
  case $code in 0) ! grep -q FASTER /tmp/compare.$$ || alarms=$((alarms + 1)) ;; 1) alarms=$((alarms + 1)) ;; 2) undecided=$((undecided + 1)) ;; *) exit 1 ;; esac
  code=0; "$program" compare "$program" "$program" --more-work-percent 5 >/tmp/compare.$$ || code=$?
  tail -n 2 /tmp/compare.$$
  [ $code != 1 ] || found=$((found + 1))
  rm -f /tmp/compare.$$
done
echo "compare.sh: of $n comparisons of a build with itself $alarms false alarms and $undecided undecided; 5 % more work found in $found of $n"
[ $alarms = 0 ] && [ $((found * 20)) -ge $((n * 19)) ] || { echo "compare.sh: BROKEN" >&2; exit 1; }
