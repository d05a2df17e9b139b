#!/usr/bin/env bash
# tests/fuzz.sh - the fuzz targets, each for a minute: for a night, not for every change.
#
#   bash tests/fuzz.sh                          all targets, a minute each
#   bash tests/fuzz.sh dbn pcap --seconds 600   only these, ten minutes each
#   bash tests/fuzz.sh --replay FILE dbn        one input again
#
# Needs rustup's stable Rust and a C++ compiler. What is found beyond the seeds stays in target/fuzz/corpus/TARGET, an input
# that breaks something in target/fuzz/found/TARGET. Once mended, it goes into fuzz/corpus/TARGET, where the ordinary tests
# try it for ever. Ends with status 0 if nothing broke.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=60 replay= targets=()
while [ $# -gt 0 ]; do
  case $1 in
    --seconds) seconds=${2:?fuzz.sh: how many seconds?}; shift 2 ;;
    --replay) replay=${2:?fuzz.sh: which file?}; shift 2 ;;
    -*) echo "fuzz.sh: what is '$1'? Give names of targets, --seconds N or --replay FILE" >&2; exit 2 ;;
    *) [ -f "fuzz/fuzz_targets/$1.rs" ] || {
         echo "fuzz.sh: there is no target '$1': give some of $(cd fuzz/fuzz_targets && echo *.rs | sed 's/\.rs//g')" >&2; exit 2; }
       targets+=("$1"); shift ;;
  esac
done
[ ${#targets[@]} -gt 0 ] || for file in fuzz/fuzz_targets/*.rs; do targets+=("$(basename "$file" .rs)"); done
host=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0

mkdir -p target/fuzz/corpus target/fuzz/found
BOOKCAST_FUZZ_SEEDS=$PWD/target/fuzz/seeds cargo test --locked --quiet --test fuzz_corpus the_seeds >/dev/null
# What cargo-fuzz builds with, without cargo-fuzz: the coverage that libFuzzer looks at, and the address sanitizer, which
# also sees to it that nothing large is allocated. RUSTC_BOOTSTRAP lets the stable compiler take -Z.
flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
flags+=" -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
flags+=" -Zsanitizer=address -Ccodegen-units=1 --cfg fuzzing"
bins=(); for target in "${targets[@]}"; do bins+=(--bin "$target"); done
RUSTC_BOOTSTRAP=1 RUSTFLAGS=$flags CARGO_TARGET_DIR=$PWD/target/fuzz \
  cargo build --locked --quiet --release --manifest-path fuzz/Cargo.toml --target "$host" "${bins[@]}"

broke=()
for target in "${targets[@]}"; do
  program=target/fuzz/$host/release/$target
  mkdir -p "target/fuzz/corpus/$target" "target/fuzz/found/$target"
  # An input is at most 16 KiB, takes at most 10 s, and allocates at most 64 MiB at once and 2 GiB in all.
  limits=(-max_len=16384 -timeout=10 -malloc_limit_mb=64 -rss_limit_mb=2048 "-artifact_prefix=target/fuzz/found/$target/")
  if [ -n "$replay" ]; then
    "$program" "${limits[@]}" "$replay"
    continue
  fi
  folders=("target/fuzz/corpus/$target" "target/fuzz/seeds/$target")
  [ ! -d "fuzz/corpus/$target" ] || folders+=("fuzz/corpus/$target")
  if log=$("$program" "${limits[@]}" -max_total_time="$seconds" -print_final_stats=1 "${folders[@]}" 2>&1); then
    echo "$target: $(sed -n 's/^Done \([0-9]* runs in [0-9]* second.*\)$/\1/p' <<<"$log"), $(sed -n 's/.* \(cov: [0-9]* ft: [0-9]* corp: [0-9]*\).*/\1/p' <<<"$log" | tail -n 1)"
  else
    broke+=("$target")
    echo "$target: BROKEN"
    grep -E "panicked at|ERROR|SUMMARY|Test unit written|^assertion|left|right" -A 2 <<<"$log" | tail -n 25 | sed 's/^/   │ /'
  fi
done
[ ${#broke[@]} = 0 ] || { echo "broken: ${broke[*]}" >&2; exit 1; }
