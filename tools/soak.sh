#!/bin/sh
# usage: sh tools/soak.sh
#
# The tests that take chances, with many more of them than a build server has time for.
set -eu
cd "$(dirname "$0")/.."

cmake --preset dev
cmake --build --preset dev
export HUFU_RACE_ROUNDS=1000000 HUFU_TEST_KILLS=10000 HUFU_HISTORY_STEPS=100000
ctest --test-dir build/dev --output-on-failure --timeout 36000 -R 'Races|KillStorm|Histories'
