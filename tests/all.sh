#!/usr/bin/env bash
# tests/all.sh - every test of the project, on a machine with rustup's stable Rust, git and a C compiler.
#
#   bash tests/all.sh             all stages
#   bash tests/all.sh STAGE…      only these: format lints docs build tests sim mutants loom costs demo vm
#
# Each stage has a time limit and prints how long it took. The last line is "N passed, N failed, N skipped". With CI=true
# a missing tool is a failure, never a skip; only tests over recorded data, which the project does not contain, may skip.
# Nothing is written outside target/ and the system's temporary folders; every process that a stage starts is ended with it.
set -uo pipefail
cd "$(dirname "$0")/.."
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0
passed=0 failed=0 skipped=0 failures=() broke=
logs=$(mktemp -d)
current=
cleanup() {
  # A stage runs in a process group of its own; whatever it left behind goes with it.
  [ -z "$current" ] || kill -KILL -- "-$current" 2>/dev/null
  rm -rf "$logs"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

need() { # need COMMAND PACKAGE: installs what is missing, or says the one command that would
  command -v "$1" >/dev/null 2>&1 && return 0
  if ! command -v apt-get >/dev/null 2>&1; then
    echo "all.sh: '$1' is missing, and this machine has no apt: install it by hand" >&2; return 1; fi
  if [ "$(id -u)" = 0 ]; then
    DEBIAN_FRONTEND=noninteractive apt-get update -qq >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y "$2" >/dev/null
  elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    sudo apt-get update -qq >/dev/null && sudo DEBIAN_FRONTEND=noninteractive apt-get install -qq -y "$2" >/dev/null
  else
    echo "all.sh: '$1' is missing; install it with: sudo apt-get install $2" >&2; return 1
  fi
  command -v "$1" >/dev/null 2>&1
}

need_component() { # need_component SUBCOMMAND COMPONENT
  cargo "$1" --version >/dev/null 2>&1 || rustup component add "$2" >/dev/null 2>&1
  cargo "$1" --version >/dev/null 2>&1 || { echo "all.sh: 'cargo $1' is missing; install it with: rustup component add $2" >&2; return 1; }
}

# Multicast stays inside a network of its own where this user may make one; elsewhere it stays on loopback by its TTL of 0.
isolated() {
  if [ "$(id -u)" = 0 ] && command -v ip >/dev/null 2>&1 && unshare -n ip link set lo up 2>/dev/null; then
    unshare -n sh -c 'ip link set lo up && exec "$@"' sh "$@"
  else
    "$@"
  fi
}

# stage NAME SECONDS COMMAND…: a stage that runs tests is counted by its tests, any other as one.
stage() {
  local name=$1 limit=$2 log started took status tests
  shift 2
  [ "${#only[@]}" = 0 ] || [[ " ${only[*]} " == *" $name "* ]] || return 0
  log=$logs/$name
  started=$(date +%s%N)
  echo "── $name (at most $limit s)"
  # timeout makes a process group of its own, so that a limit that is passed ends all of it.
  timeout -k 5 "$limit" bash -c '"$@"' stage "$@" </dev/null >"$log" 2>&1 &
  current=$!
  wait "$current"; status=$?
  kill -KILL -- "-$current" 2>/dev/null
  current=
  took=$(( ($(date +%s%N) - started) / 100000000 ))
  tests=$(grep -c '^test result:' "$log" || true)
  if [ "$tests" -gt 0 ]; then
    local p f s
    p=$(sed -n 's/^test result: .* \([0-9]*\) passed; .*/\1/p' "$log" | paste -sd+ | sed 's/$/+0/')
    f=$(sed -n 's/^test result: .* \([0-9]*\) failed; .*/\1/p' "$log" | paste -sd+ | sed 's/$/+0/')
    # A test that skips itself is "ok" to the test runner; here it has not passed.
    s=$(grep -c 'SKIPPED data test' "$log" || true)
    # Nor has one that is of another RDMA fabric; it is counted in the guest where it runs.
    p=$((p - $(grep -c '^not on this fabric' "$log" || true)))
    passed=$((passed + p - s)); failed=$((failed + f)); skipped=$((skipped + s))
    # A build that broke, or a limit that was passed, is a failure though no test failed.
    if [ $status -ne 0 ] && [ $((f)) = 0 ]; then failed=$((failed + 1)); fi
  elif [ $status = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
  if [ $status -ne 0 ]; then
    failures+=("$name")
    [ $status != 124 ] || echo "   the limit of $limit s was passed"
    echo "   FAILED (status $status) after $((took / 10)).$((took % 10)) s"
    # What broke, and what each panic said; output of tests that passed stands in the log too.
    grep -E -A 5 '^(error|FAIL|BROKEN|test .*FAILED)|panicked at' "$log" | head -n 60 | sed 's/^/   │ /'
    echo "   the end of its output:"
    tail -n 30 "$log" | sed 's/^/   │ /'
    broke+=$(grep -E '^(BROKEN|test .*FAILED)' "$log" | sed "s/^/$name: /")$'\n'
  else
    echo "   passed in $((took / 10)).$((took % 10)) s"
    grep -h -E '^(  │|SKIPPED data test)' "$log" | sort | uniq -c | sed 's/^ */   /' || true
  fi
}

only=("$@")
for name in "${only[@]}"; do
  # A misspelt stage would pass with nothing run.
  [[ " format lints docs build tests sim mutants loom costs demo vm " == *" $name "* ]] || {
    echo "all.sh: there is no stage '$name': give some of format lints docs build tests sim mutants loom costs demo vm" >&2; exit 2; }
done
# Everything that comes over the network comes now; the stages that run tests are offline.
cargo fetch --locked >/dev/null 2>&1 || { echo "all.sh: the crates in Cargo.lock could not be fetched: check the connection to the registry" >&2; failed=$((failed + 1)); }
need cc gcc || failed=$((failed + 1))
need_component fmt rustfmt || failed=$((failed + 1))
need_component clippy clippy || failed=$((failed + 1))
if [ "$(id -u)" = 0 ]; then need ip iproute2 || true; fi
# What counts instructions: valgrind, and the runner that belongs to the library gungraun, built once and kept in target/.
need_counting() {
  need valgrind valgrind || return 1
  local version
  version=$(sed -n 's/^gungraun = "=\(.*\)"$/\1/p' Cargo.toml)
  [ "$(target/tools/bin/gungraun-runner --version 2>/dev/null)" = "gungraun-runner $version" ] && return 0
  echo "── gungraun-runner $version is built (once)"
  cargo install --quiet --locked --root target/tools gungraun-runner --version "=$version" && return 0
  echo "all.sh: gungraun-runner could not be built: see what cargo install says above" >&2; return 1
}
if [ "${#only[@]}" = 0 ] || [[ " ${only[*]} " == *" costs "* ]]; then need_counting || failed=$((failed + 1)); fi

lints() { cargo clippy --locked --workspace --all-targets -- -D warnings; }
docs() { RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --document-private-items; }
# The binaries first: end-to-end tests start them, and find them beside the test executable.
build() { cargo build --locked --workspace --bins --examples && cargo test --locked --workspace --no-run; }
# Tests that measure nothing, but do run threads against each other, share two cores: one test binary at a time.
tests() { isolated cargo test --locked --offline --workspace --no-fail-fast -- --show-output; }
# 2,000 bad days in virtual time, each from a seed of its own.
sim() { bash tests/sim.sh; }
# One safeguard at a time is taken out, and a test must fail; all of them with bash tests/mutants.sh.
mutants() { bash tests/mutants.sh --short; }
loom() { RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test --locked --release -p transport --test loom_ring --test loom_cells; }
# Instructions of the hot path's pieces, held to benches/costs/LIMITS.toml.
costs() { cargo run --locked --quiet -p costs; }
demo() { isolated bash tests/demo.sh; }
# Real RDMA verbs on soft devices, in a virtual machine; it installs what that needs by the same rules.
vm() { bash tests/vm/all.sh; }
export -f isolated lints docs build tests sim mutants loom costs demo vm

stage format 60 cargo fmt --all --check
stage lints 600 lints
stage docs 300 docs
stage build 900 build
stage tests 900 tests
stage sim 300 sim
stage mutants 300 mutants
stage loom 420 loom
stage costs 600 costs
stage demo 420 demo
stage vm 2400 vm

echo
[ ${#failures[@]} = 0 ] || printf '%sfailed: %s\n' "$broke" "${failures[*]}"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
