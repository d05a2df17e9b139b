#!/usr/bin/env bash
# tests/sim.sh - the simulation: bad days in virtual time, each decided by one seed.
#
#   bash tests/sim.sh                2,000 seeds, in about a minute
#   bash tests/sim.sh --seeds N      so many, from seed 0 on; any number, for a night
#   bash tests/sim.sh --from S       from seed S on
#   bash tests/sim.sh --seed S       one of them
#
# Ends with status 0 if every run ended with the right books and nothing was silent; a seed that fails is named with the
# command that repeats it.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0 BOOKCAST_SIM_SEEDS=2000
unset BOOKCAST_SIM_SEED BOOKCAST_SIM_FROM
while [ $# -gt 0 ]; do
  case $1 in
    --seeds) BOOKCAST_SIM_SEEDS=${2:?sim.sh: how many seeds?}; shift 2 ;;
    --from) export BOOKCAST_SIM_FROM=${2:?sim.sh: from which seed?}; shift 2 ;;
    --seed) export BOOKCAST_SIM_SEED=${2:?sim.sh: which seed?}; shift 2 ;;
    *) echo "sim.sh: what is '$1'? Give --seeds N, --from S or --seed S" >&2; exit 2 ;;
  esac
done
if [ -n "${BOOKCAST_SIM_SEED:-}" ]; then
  exec cargo test --locked --quiet --test sim every_seed -- --show-output
fi
exec cargo test --locked --quiet --test sim -- --show-output
