#!/bin/bash
# usage: run.sh README BUILD_DIR SOURCE_DIR
#
# Takes the C programs out of a README (each block of C begins with "// NAME.c"), builds them against
# the build tree and lets the importer read what the exporter wrote, with a broker of their own. What
# a reader would copy must work.
set -euo pipefail
readme=$1 build=$2 source=$3

work=$(mktemp -d /tmp/hufu-readme.XXXXXX)
exporter=
finish() {
  [ -z "$exporter" ] || kill "$exporter" 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT
cd "$work"

awk '/^```c$/ { inside = 1; next } /^```$/ { inside = 0 }
     inside && /^\/\/ [a-z]+\.c/ { file = $2; sub(/:$/, "", file) }
     inside { print > file }' "$readme"
for name in exporter importer; do
  "${CC:-cc}" -Wall -Wextra -Werror $name.c -o $name -I"$source/include" -L"$build/lib64" -lascendcl \
              -Wl,-rpath,"$build/lib64"
done

export HUFU_BROKER=unix:$work/broker.sock HUFU_AUDIT_DIR=$work/audit HUFU_IDLE_MS=200

# wait_until COMMAND...: 20 seconds for a busy machine.
wait_until() {
  local tries=400
  until "$@"; do
    tries=$((tries - 1))
    if [ $tries -eq 0 ]; then
      echo "waited in vain for: $*" >&2
      return 1
    fi
    sleep 0.05
  done
}
key_is_whole() { [ "$(wc -c <key 2>/dev/null || echo 0)" -eq 64 ]; }
broker_is_gone() { [ ! -e broker.sock ]; }

mkfifo enter
./exporter <enter &
exporter=$!
exec 9>enter
wait_until key_is_whole
./importer | tee said
grep -q 'the same pages' said

exec 9>&-  # the end of its input is as good as Enter
wait "$exporter"
exporter=
if ./importer 2>refusal; then
  echo "a key outlived its exporter" >&2
  exit 1
fi
# The broker may have left meanwhile; then the next one does not know the key.
grep -qE 'the export has ended|was not issued by the broker' refusal
wait_until broker_is_gone
