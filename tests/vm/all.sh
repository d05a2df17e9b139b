#!/usr/bin/env bash
# tests/vm/all.sh - the tests that need RDMA devices: built here with the feature `rdma`, run in one virtual machine with
# two Soft-RoCE devices at the ends of a wire (tests/vm/run).
#
#   tests/vm/all.sh            all of them
#   tests/vm/all.sh NAME…      only the test programs of these names, such as rdma_torn
#
# Without names also the lints and the documentation of what only the feature builds. Prints how long each took; the last
# line is "N passed, N failed, N skipped". Ends within ten minutes. What is missing is named with the command that installs
# it, and counts as a failure; root with CI=true installs it by itself.
set -uo pipefail
cd "$(dirname "$0")/../.."
export CARGO_TERM_COLOR=never
BUILD_LIMIT=300 GUEST_LIMIT=270
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

echo "── build (at most $BUILD_LIMIT s)"
at=$SECONDS
targets=(--lib)
[ $# -gt 0 ] && targets=()
for name in "${@:-rdma_*}"; do targets+=(--test "$name"); done
if ! group "$BUILD_LIMIT" "$work/build" cargo test --locked -p transport --features rdma "${targets[@]}" --no-run \
  --message-format json-render-diagnostics; then
  grep -v '^{' "$work/build" | tail -n 60
  failed=1
  finish
fi
sed -n 's/^{"reason":"compiler-artifact".*"executable":"\([^"]*\)".*/\1/p' "$work/build" >"$work/programs"
echo "   $(wc -l <"$work/programs") test programs in $((SECONDS - at)) s"

# ── What the other stages do not see without the feature ─────────────────────────────────────────────────────────────
# check NAME COMMAND…: counted as one test.
check() {
  local name=$1 at=$SECONDS
  shift
  if group 120 "$work/$name" "$@"; then
    passed=$((passed + 1))
    echo "── $name passed in $((SECONDS - at)) s"
  else
    failed=$((failed + 1))
    echo "── $name FAILED after $((SECONDS - at)) s"
    tail -n 40 "$work/$name"
  fi
}
if [ $# = 0 ]; then
  check lints cargo clippy --locked -p transport --features rdma --all-targets -- -D warnings
  check docs env RUSTDOCFLAGS='-D warnings' cargo doc --locked -p transport --features rdma --no-deps --document-private-items
fi

# ── To run ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# One test at a time: each of them polls, some spoil the wire, and there are two processors.
cat >"$work/guest" <<'GUEST'
while read -r program; do
  name=$(basename "$program"); name=${name%-*}
  echo "── $name"
  at=$(date +%s)
  only=
  # Of the library's own tests those that know RDMA; the others run elsewhere.
  [ "$name" != transport ] || only=rdma::
  timeout -k 5 180 "$program" $only --test-threads=1 --show-output
  status=$?
  echo "   status $status after $(($(date +%s) - at)) s"
  [ $status = 0 ] || echo "BROKEN $name"
done <"$1"
echo "GUEST DONE"
GUEST
echo "── run in the virtual machine (at most $GUEST_LIMIT s)"
at=$SECONDS
export VM_TOPO=wire VM_TIMEOUT=$GUEST_LIMIT RUST_BACKTRACE=${RUST_BACKTRACE:-0}
group $((GUEST_LIMIT + 30)) "$work/output" tests/vm/run bash "$work/guest" "$work/programs"
status=$?
grep -vE '^$|^(successes|failures):$|^running|^    [a-z_:]+$' "$work/output"
echo "   the guest took $((SECONDS - at)) s"
sum() { sed -n "s/^test result: .* \([0-9]*\) $1;.*/\1/p" "$work/output" | paste -sd+ | sed 's/$/+0/'; }
run_passed=$(($(sum passed)))
run_failed=$(($(sum failed)))
# A program that ended without a result (a panic outside a test, its time limit), or a guest that did not come to its end,
# is a failure though no test failed.
broken=$(grep -c '^BROKEN ' "$work/output")
[ "$broken" -le "$run_failed" ] || run_failed=$broken
if [ "$status" != 0 ] || ! grep -q '^GUEST DONE' "$work/output"; then run_failed=$((run_failed + 1)); fi
[ "$run_passed" -gt 0 ] || run_failed=$((run_failed + 1))
passed=$((passed + run_passed)) failed=$((failed + run_failed))
finish
