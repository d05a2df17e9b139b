#!/usr/bin/env bash
# tests/vm/compare.sh - one line there and back, by `feeds-replay ping` and by perftest in turn, in the guest that this runs
# in: VM_TOPO=loop tests/vm/run bash tests/vm/compare.sh. tests/vm/all.sh does that.
#
#   ROUNDS=10   pairs of each kind
#   PINGS=500   round trips of each run
#   BESIDE=3    rounds in which what stands beside is run too
#
# RC: a write of one line (64 bytes) beside ib_write_lat -s 64. UD: a datagram of header and line (96 bytes) to one queue
# pair, beside ib_send_lat -c UD -s 96. Half a round trip, the median of each run; what is compared are the medians of those
# medians. Beside them the hop by multicast, and the same line by the kernel's UDP and TCP sockets. The bar is printed with
# the verdict; the status is 1 only if a ratio is so high that something is broken, or a run fails. On a machine that others
# use too, whose cores both stall now and then, medians say little: then the least times decide whether it is broken.
set -uo pipefail
cd "$(dirname "$0")/../.."
PATH=$PATH:/usr/sbin
ROUNDS=${ROUNDS:-10} PINGS=${PINGS:-500} BESIDE=${BESIDE:-3}
BAR=1.25 BROKEN=2.5
PING=${PING:-target/release/feeds-replay}
here=10.99.0.1 device=rxe0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
started=$SECONDS
die() { echo "compare: $*" >&2; exit 1; }
[ -x "$PING" ] || die "$PING is not built: cargo build --release -p feeds-replay --features rdma"
# The address's place in the GID table; 0 is mostly link-local.
gid=$(grep -l 0000:ffff:0a63:0001 /sys/class/infiniband/$device/ports/1/gids/* 2>/dev/null | head -n 1)
[ -n "$gid" ] || die "$device has no GID for $here: run this in the guest loop of tests/vm/run"
gid=${gid##*/}

# ours NAME ARGUMENT…: half a round trip's median, us.
ours() {
  local name=$1 text
  shift
  text=$(timeout -k 2 60 "$PING" ping --json --cores 0,1 --warmup 100 --count "$PINGS" "$@" 2>"$work/error") ||
    die "$name failed: $(cat "$work/error") $text"
  sed 's/.*"half_round_trip_ns":{[^}]*"p50":\([0-9]*\).*/\1/' <<<"$text" | awk '{printf "%.2f\n", $1 / 1000}' >>"$work/$name"
}

# theirs NAME PROGRAM ARGUMENT…: perftest's typical time, which is the median, us.
theirs() {
  local name=$1 program=$2 server try text
  shift 2
  taskset -c 1 timeout -k 2 60 "$program" -d $device -x "$gid" -F -n "$PINGS" "$@" >"$work/server" 2>&1 &
  server=$!
  # 18515, perftest's port, in the state of listening.
  for try in $(seq 500); do
    grep -q ':4853 [0-9A-F]*:0000 0A' /proc/net/tcp /proc/net/tcp6 2>/dev/null && break
    sleep 0.01
  done
  text=$(taskset -c 0 timeout -k 2 60 "$program" -d $device -x "$gid" -F -n "$PINGS" "$@" $here 2>&1) ||
    die "$program failed: $text"
  wait "$server" || die "$program's server failed: $(cat "$work/server")"
  awk '$2 == n && NF >= 8 { print $5 }' n="$PINGS" <<<"$text" >>"$work/$name"
}

rc() { ours rc --transport rdma-rc --address $here; }
write_lat() { theirs write_lat ib_write_lat -s 64; }
ud() { ours ud --transport rdma-ud --address $here; }
send_lat() { theirs send_lat ib_send_lat -c UD -s 96; }
pair() { if [ $((round % 2)) = 0 ]; then "$1"; "$2"; else "$2"; "$1"; fi; }

for round in $(seq "$ROUNDS"); do
  echo "round $round: $((SECONDS - started)) s" >&2
  pair rc write_lat
  pair ud send_lat
  [ "$round" -le "$BESIDE" ] || continue
  ours multicast --transport rdma-ud --multicast --address $here
  ours kernel_udp --transport kernel-udp --address $here
  ours kernel_tcp --transport kernel-tcp --address $here
done

# The median, the least and the greatest of a column.
of() {
  sort -g "$work/$1" | awk '{v[NR] = $1}
    END {m = NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2; printf "%.2f %.2f %.2f", m, v[1], v[NR]}'
}
row() { # row LABEL NAME
  local median least greatest
  read -r median least greatest <<<"$(of "$2")"
  printf '  %-46s %9s %9s %9s\n' "$1" "$median" "$least" "$greatest"
}
status=0
verdict() { # verdict LABEL OURS THEIRS
  local mine yours
  mine=$(of "$2") yours=$(of "$3")
  [ "$(wc -l <"$work/$2")" = "$ROUNDS" ] && [ "$(wc -l <"$work/$3")" = "$ROUNDS" ] || die "$1: not $ROUNDS pairs"
  # shellcheck disable=SC2086 # three numbers each
  awk -v label="$1" -v bar=$BAR -v broken=$BROKEN 'BEGIN {
    ratio = ARGV[1] / ARGV[4]; least = ARGV[2] / ARGV[5]
    said = ratio <= bar ? "met" : "MISSED"
    if (ratio > broken && least > broken) said = "MISSED, and so far that something is broken"
    printf "  %s: ratio of medians %.2f (of the least %.2f); the bar of %.2f is %s\n", label, ratio, least, bar, said
    exit ratio > broken && least > broken
  }' $mine $yours || status=1
}
echo "half a round trip of one line, us: $ROUNDS runs of $PINGS round trips each, ours and perftest's in turn"
printf '  %-46s %9s %9s %9s\n' '' 'median' 'least' 'greatest'
row 'RC write of 64 bytes: feeds-replay ping' rc
row 'RC write of 64 bytes: ib_write_lat' write_lat
row 'UD datagram of 96 bytes: feeds-replay ping' ud
row 'UD datagram of 96 bytes: ib_send_lat' send_lat
row 'UD datagram by multicast: feeds-replay ping' multicast
row 'kernel UDP, 64 bytes: feeds-replay ping' kernel_udp
row 'kernel TCP, 64 bytes: feeds-replay ping' kernel_tcp
verdict 'RC write beside ib_write_lat' rc write_lat
verdict 'UD datagram beside ib_send_lat' ud send_lat
echo "  taken in a virtual machine, whose devices are software and whose processor is emulated: the ratios are what counts;"
echo "  $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores, both busy; Linux $(uname -r); $((SECONDS - started)) s"
exit $status
