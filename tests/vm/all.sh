#!/usr/bin/env bash
# tests/vm/all.sh - the tests that need RDMA devices: built here with the feature `rdma`, run in virtual machines that
# tests/vm/run starts, one for each kind of device.
#
#   tests/vm/all.sh            all of them
#   tests/vm/all.sh NAME…      only the test programs of these names, such as rdma_torn
#   tests/vm/all.sh compare    only the comparison with perftest
#
# The test programs are the rdma_* of the crate transport and of the root package, and the libraries' own tests of RDMA;
# guests() says what runs where. Without names also the lints and the documentation of what only the feature builds, and
# the comparison. Prints how long each part took; the last line is "N passed, N failed, N skipped". Ends within ten minutes
# once everything is built. What is missing is named with the command that installs it, and counts as a failure; root with
# CI=true installs it by itself.
set -uo pipefail
cd "$(dirname "$0")/../.."
export CARGO_TERM_COLOR=never
BUILD_LIMIT=900
passed=0 failed=0 skipped=0
started=$SECONDS
work=$(mktemp -d)
child=
cleanup() {
  [ -z "$child" ] || kill -TERM -- "-$child" 2>/dev/null
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
finish() {
  echo "elapsed $((SECONDS - started)) s"
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" = 0 ]
  exit
}

# What runs in which guest: the guest, its time limit in seconds, and patterns of test programs. iWARP has connections
# alone: what runs in its guest knows it by BOOKCAST_RDMA.
guests() {
  cat <<'LIST'
none 60 rdma_devices
wire 600 *
siw 300 rdma_devices rdma_ping rdma_fanout rdma_rc rdma_rc_ends rdma_reply rdma_conformance rdma_no_alloc rdma_iwarp rdma_iwarp_day rdma_recovery
LIST
}
COMPARE_LIMIT=240

# ── To build ─────────────────────────────────────────────────────────────────────────────────────────────────────────
packages=(libibverbs-dev librdmacm-dev cmake pkg-config clang libclang-dev gcc)
missing=
for tool in cmake pkg-config clang cc; do command -v "$tool" >/dev/null || missing="$missing $tool"; done
for header in infiniband/verbs.h rdma/rdma_cma.h; do [ -e "/usr/include/$header" ] || missing="$missing $header"; done
compgen -G '/usr/lib/*/libclang*.so*' >/dev/null || compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' >/dev/null ||
  missing="$missing libclang"
if [ -n "$missing" ] && [ "$(id -u)" = 0 ] && [ "${CI:-}" = true ] && command -v apt-get >/dev/null; then
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq >/dev/null && apt-get install -qq -y "${packages[@]}" >/dev/null && missing=
fi
if [ -n "$missing" ]; then
  echo "vm/all.sh: missing:$missing; install it with: sudo apt-get install ${packages[*]}" >&2
  failed=1
  finish
fi

# group SECONDS OUTPUT COMMAND…: in a process group of its own, ended as a whole.
group() {
  local limit=$1 output=$2
  shift 2
  timeout -k 5 "$limit" "$@" </dev/null >"$output" 2>&1 &
  child=$!
  wait "$child"
  local status=$?
  child=
  return $status
}

# build WHAT COMMAND…: ends everything if it fails.
build() {
  local what=$1 at=$SECONDS
  shift
  if ! group "$BUILD_LIMIT" "$work/build" "$@"; then
    grep -v '^{' "$work/build" | tail -n 60
    echo "── build of $what FAILED after $((SECONDS - at)) s"
    failed=1
    finish
  fi
  echo "── build of $what: $((SECONDS - at)) s"
}

# The packages that have the feature: always all of them, so that what they share is built once.
all=(-p transport -p publisher -p subscriber -p feeds-replay -p bookcast-tests)
names=("$@")
compare=true
if [ ${#names[@]} -gt 0 ]; then
  compare=
  for i in "${!names[@]}"; do [ "${names[i]}" != compare ] || { compare=true; unset "names[i]"; }; done
fi
targets=(--lib)
[ $# = 0 ] || targets=()
: >"$work/programs"
if [ $# = 0 ] || [ ${#names[@]} -gt 0 ]; then
  [ $# -gt 0 ] || names=('rdma_*')
  for name in "${names[@]}"; do targets+=(--test "$name"); done
  # The root package's tests start the programs as a user would, and find them beside themselves.
  for name in "${names[@]}"; do
    compgen -G "tests/$name.rs" >/dev/null || continue
    build programs cargo build --locked --bins --features rdma "${all[@]}"
    break
  done
  build tests cargo test --locked "${all[@]}" --features rdma "${targets[@]}" --no-run \
    --message-format json-render-diagnostics
  # The root package's library has no tests.
  sed -n 's/^{"reason":"compiler-artifact".*"executable":"\([^"]*\)".*/\1/p' "$work/build" |
    grep -E '/(transport|publisher|subscriber|feeds_replay|rdma_[a-z_]*)-[0-9a-f]*$' >"$work/programs"
  [ -s "$work/programs" ] || { echo "vm/all.sh: no test program is called ${names[*]}" >&2; failed=1; finish; }
fi
if [ -n "$compare" ]; then
  # As it ships: its figures stand beside those of optimised programs.
  build "what is compared" cargo build --locked --release --features rdma -p feeds-replay
fi

# ── What the other stages do not see without the feature ─────────────────────────────────────────────────────────────
# check NAME SECONDS COMMAND…: counted as one test.
check() {
  local name=$1 limit=$2 at=$SECONDS
  shift 2
  if group "$limit" "$work/$name" "$@"; then
    passed=$((passed + 1))
    [ "$name" != comparison ] || cat "$work/$name"
    echo "── $name passed in $((SECONDS - at)) s"
  else
    failed=$((failed + 1))
    echo "── $name FAILED after $((SECONDS - at)) s"
    tail -n 60 "$work/$name"
  fi
}
if [ $# = 0 ]; then
  check lints 240 cargo clippy --locked "${all[@]}" --features rdma --all-targets -- -D warnings
  check docs 180 env RUSTDOCFLAGS='-D warnings' cargo doc --locked "${all[@]}" --features rdma --no-deps --document-private-items
fi

# ── To run ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# One test at a time: each of them polls, some spoil the wire, and there are two processors.
cat >"$work/guest" <<'GUEST'
while read -r program; do
  name=$(basename "$program"); name=${name%-*}
  echo "── $name"
  at=$(date +%s)
  only=
  # Of the libraries' own tests those that know RDMA; the others run elsewhere.
  case $name in rdma_*) ;; *) only='rdma:: devices::' ;; esac
  timeout -k 5 180 "$program" $only --test-threads=1 --show-output
  status=$?
  echo "   status $status after $(($(date +%s) - at)) s"
  [ $status = 0 ] || echo "BROKEN $name"
done <"$1"
echo "GUEST DONE"
GUEST

# chosen NAMES…: the paths of those programs that were built, in that order.
chosen() {
  local name path
  for name in "$@"; do
    while read -r path; do
      # shellcheck disable=SC2254 # a pattern is meant
      case $(basename "${path%-*}") in $name) echo "$path" ;; esac
    done <"$work/programs"
  done
}

# guest TOPOLOGY SECONDS PROGRAM…: runs those in one guest, and counts their tests.
guest() {
  local topology=$1 limit=$2 at=$SECONDS status output run_passed run_failed broken
  shift 2
  set -f
  chosen "$@" >"$work/list"
  set +f
  [ -s "$work/list" ] || return 0
  output=$work/output-$topology
  echo "── guest $topology (at most $limit s)"
  export VM_TOPO=$topology VM_TIMEOUT=$limit RUST_BACKTRACE=${RUST_BACKTRACE:-0} BOOKCAST_RDMA=rxe
  [ "$topology" != siw ] || BOOKCAST_RDMA=siw
  # The first guest of its kind may have to fetch its kernel.
  group $((limit + 120)) "$output" tests/vm/run bash "$work/guest" "$work/list"
  status=$?
  grep -vE '^$|^(successes|failures):$|^running|^    [a-z_:]+$' "$output"
  sum() { sed -n "s/^test result: .* \([0-9]*\) $1;.*/\1/p" "$output" | paste -sd+ | sed 's/$/+0/'; }
  # What is of another fabric returns at once; it is counted in the guest where it runs.
  run_passed=$(($(sum passed) - $(grep -c '^not on this fabric' "$output")))
  run_failed=$(($(sum failed)))
  # A program that ended without a result (a panic outside a test, its time limit), or a guest that did not come to its
  # end, is a failure though no test failed.
  broken=$(grep -c '^BROKEN ' "$output")
  [ "$broken" -le "$run_failed" ] || run_failed=$broken
  if [ "$status" != 0 ] || ! grep -q '^GUEST DONE' "$output"; then run_failed=$((run_failed + 1)); fi
  [ "$run_passed" -gt 0 ] || run_failed=$((run_failed + 1))
  passed=$((passed + run_passed)) failed=$((failed + run_failed))
  echo "── guest $topology: $run_passed passed, $run_failed failed in $((SECONDS - at)) s"
}

while read -r topology limit programs; do
  # shellcheck disable=SC2086 # one word for each program
  set -f; set -- $programs; set +f
  guest "$topology" "$limit" "$@" </dev/null
done < <(guests)
if [ -n "$compare" ]; then
  export VM_TOPO=loop VM_TIMEOUT=$COMPARE_LIMIT
  check comparison $((COMPARE_LIMIT + 60)) tests/vm/run bash tests/vm/compare.sh
fi
finish
