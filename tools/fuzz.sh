#!/bin/sh
# usage: sh tools/fuzz.sh [SECONDS] [TARGET ...]
#
# Runs every fuzz target (or those named) for SECONDS, 60 unless told. What a target learns stays in
# build/fuzz/corpus/TARGET and is where the next run begins; the inputs in tests/fuzz/TARGET are read
# too. An input that breaks a target is kept in build/fuzz/findings/TARGET: mend the code, then move it
# to tests/fuzz/TARGET, which every test run replays.
set -eu
cd "$(dirname "$0")/.."

seconds=${1:-60}
if [ $# -gt 0 ]; then
  shift
fi
fixed=  # see tools/sanitize.sh
if setarch -R true 2>/dev/null; then
  fixed="setarch -R"
fi

cmake --preset fuzz >/dev/null
cmake --build --preset fuzz
if [ $# -eq 0 ]; then
  # shellcheck disable=SC2046  # a target's name is a word
  set -- $(cat build/fuzz/fuzzers.txt)
fi
if [ $# -eq 0 ]; then
  echo "fuzz: there is no fuzz target" >&2
  exit 1
fi

status=0
for target in "$@"; do
  corpus=build/fuzz/corpus/$target findings=build/fuzz/findings/$target log=build/fuzz/$target.log
  seeds=tests/fuzz/$target
  mkdir -p "$corpus" "$findings"
  if ! [ -d "$seeds" ]; then
    seeds=
  fi
  if $fixed "build/fuzz/bin/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 \
      -print_final_stats=1 -artifact_prefix="$findings/" "$corpus" $seeds >"$log" 2>&1; then
    echo "fuzz: $target: nothing found," \
         "$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log") executions/s," \
         "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log") in all"
  else
    echo "fuzz: $target: FAILED; the end of $log:"
    tail -n 40 "$log"
    status=1
  fi
done
exit $status
