#!/bin/sh
# usage: sh tools/soak.sh [short|long]
#
# The tests that take chances, with many more of them than a build server has time for, and the
# fuzz targets for longer. short is about half an hour on two cores, long a night.
set -eu
cd "$(dirname "$0")/.."

case ${1:-short} in
  short) rounds=1000000 kills=10000 steps=100000 plays=20 seconds=120 ;;
  long) rounds=10000000 kills=500000 steps=1000000 plays=1000 seconds=3600 ;;
  *) sed -n '2,5p' "$0" >&2; exit 2 ;;
esac

cmake --preset dev
cmake --build --preset dev
export HUFU_RACE_ROUNDS=$rounds HUFU_TEST_KILLS=$kills HUFU_HISTORY_STEPS=$steps HUFU_TEST_PLAYS=$plays
ctest --test-dir build/dev --output-on-failure --timeout 36000 \
  -R 'Races|KillStorm|Histories|broker/sessions_test'
sh tools/fuzz.sh $seconds
