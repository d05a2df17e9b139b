#!/usr/bin/env bash
# tests/mutants.sh - takes out one safeguard at a time, and sees that a test fails.
#
#   bash tests/mutants.sh                 every mutant in tests/mutants/
#   bash tests/mutants.sh --short         those marked short: one build of two crates, a minute or so
#   bash tests/mutants.sh NAME…           these
#   bash tests/mutants.sh --list          their names, and what each takes out
#
# A mutant is a patch with a head of four lines: what it takes out, whether it is short, the arguments of `cargo test` that
# run the test, and the test that must fail. It is applied to a copy of the tree. A mutant that does not apply any more,
# that does not compile, or that its test survives, fails this script; so does a test that is not there, or that fails
# without the mutant.
#
# The copy and what is built of it stay in target/mutants, for the next time.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=1 RUST_BACKTRACE=0
# What is not run often enough to be worth optimising.
export CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_PROFILE_DEV_DEBUG=false CARGO_PROFILE_TEST_OPT_LEVEL=0 CARGO_PROFILE_TEST_DEBUG=false
root=$PWD tree=$PWD/target/mutants/tree
export CARGO_TARGET_DIR=$PWD/target/mutants/target

head_of() { sed -n "s/^# $2: //p" "$root/tests/mutants/$1.patch" | head -n 1; }

short= names=()
for argument in "$@"; do
  case $argument in
    --short) short=1 ;;
    --list)
      for patch in tests/mutants/*.patch; do
        name=$(basename "$patch" .patch)
        printf '%-24s %s\n' "$name" "$(head_of "$name" What)"
      done
      exit 0 ;;
    -*) echo "mutants.sh: what is '$argument'? Give --short, --list or names of mutants" >&2; exit 2 ;;
    *)
      [ -f "tests/mutants/$argument.patch" ] || { echo "mutants.sh: there is no mutant '$argument'; --list names them" >&2; exit 2; }
      names+=("$argument") ;;
  esac
done
if [ "${#names[@]}" = 0 ]; then
  for patch in tests/mutants/*.patch; do
    name=$(basename "$patch" .patch)
    [ -n "$short" ] && [ "$(head_of "$name" Short)" != yes ] || names+=("$name")
  done
fi

# One run at a time in the copy.
mkdir -p "$tree"
exec 9>target/mutants/lock
flock -n 9 || { echo "mutants.sh: another run is using target/mutants; wait for it" >&2; exit 1; }

# The tree as it is now, uncommitted changes and new files too. Only what differs is copied, so that cargo builds no more than
# it must; what is not there any more is removed.
git ls-files -co --exclude-standard >target/mutants/files
while IFS= read -r file; do
  [ -f "$file" ] || continue
  cmp -s "$file" "$tree/$file" && continue
  mkdir -p "$(dirname "$tree/$file")"
  cp "$file" "$tree/$file"
done <target/mutants/files
(cd "$tree" && find . -type f | sed 's|^\./||' | sort) | comm -23 - <(sort target/mutants/files) | while IFS= read -r file; do
  rm -f "$tree/$file"
done

log=target/mutants/log
survivors=()
killed=0
fail() { # fail NAME WHY: with the end of what was printed
  echo "  ✗ $1: $2"
  tail -n 20 "$root/$log" | sed 's/^/    │ /'
  survivors+=("$1")
}

# Puts back what a mutant changed. Written anew: cargo looks at the time, and must not take the mutant's build for this one's.
restore() {
  local file
  for file in $1; do cp "$root/$file" "$tree/$file"; done
}

for name in "${names[@]}"; do
  patch=$root/tests/mutants/$name.patch
  arguments=$(head_of "$name" Test) kills=$(head_of "$name" Kills)
  : >"$log"
  if [ -z "$arguments" ] || [ -z "$kills" ]; then fail "$name" "its head does not say which test kills it"; continue; fi
  changed=$(sed -n 's|^+++ b/||p' "$patch")
  started=$(date +%s)
  # Outside of any repository, git applies a patch to files as they are, or not at all.
  if ! (cd "$tree" && GIT_DIR=/nonexistent git apply --whitespace=nowarn "$patch") >"$log" 2>&1; then
    fail "$name" "does not apply any more"; continue
  fi
  # shellcheck disable=SC2086  # the arguments are words
  if ! (cd "$tree" && cargo test --locked --quiet --no-run $arguments) >"$log" 2>&1; then
    fail "$name" "does not compile"; restore "$changed"; continue
  fi
  # shellcheck disable=SC2086
  if (cd "$tree" && timeout -k 5 300 cargo test --locked $arguments -- --exact "$kills") >"$log" 2>&1; then
    if grep -q "^test $kills \.\.\. ok" "$log"; then
      fail "$name" "survives $kills"
    else
      fail "$name" "there is no test $kills"
    fi
  elif grep -q "^test $kills \.\.\. FAILED" "$log" && grep -q 'panicked at' "$log"; then
    echo "  ✓ $name: $kills fails, $(($(date +%s) - started)) s"
    killed=$((killed + 1))
  else
    fail "$name" "did not make $kills fail by what it asserts"
  fi
  restore "$changed"
done

# Without a mutant every one of these tests passes; or their failing would mean nothing.
sets=$(for name in "${names[@]}"; do head_of "$name" Test; done | sort -u)
while IFS= read -r arguments; do
  tests=()
  for name in "${names[@]}"; do [ "$(head_of "$name" Test)" != "$arguments" ] || tests+=("$(head_of "$name" Kills)"); done
  # shellcheck disable=SC2086
  if ! (cd "$tree" && timeout -k 5 600 cargo test --locked $arguments -- --exact "${tests[@]}") >"$log" 2>&1; then
    fail "$arguments" "fails without any mutant"
  fi
done <<<"$sets"

echo "$killed of ${#names[@]} mutants killed"
[ "${#survivors[@]}" = 0 ] || { echo "not: ${survivors[*]}"; exit 1; }
