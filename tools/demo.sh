#!/bin/sh
# usage: sh tools/demo.sh               or: FILE=/your/model.bin sh tools/demo.sh
#
# From a fresh Debian 12 and this source tree to the main job, on a real file: a loader shares it,
# four workers read it with no copy, a process that is not on the list is refused, the loader is
# killed while the workers read on, and the audit log tells all of it. Then what the same hand-over
# costs through a pipe. The exit status is 0 if everything was as claimed.
#
# BUILD=DIR uses a build tree that is there already. The broker is the demo's own, in a temporary
# directory; nothing and nobody is left behind.
set -eu
cd "$(dirname "$0")/.."

# The file: the LSTM model of tesseract's English, as Debian ships it.
model_package=tesseract-ocr-eng
if [ -z "${FILE:-}" ]; then
  sh tools/install_deps.sh $model_package
  FILE=$(dpkg -L $model_package | grep '/eng\.traineddata$')
fi
if [ -z "${BUILD:-}" ]; then
  sh tools/install_deps.sh
  BUILD=build/release
  echo "== building (cmake preset release)"
  cmake --preset release >/dev/null
  cmake --build --preset release --target hufu_cli hufud example_02_workers \
    example_03_handover_cost
fi
hufu=$BUILD/bin/hufu
examples=$BUILD/examples

dir=$(mktemp -d /tmp/hufu-demo.XXXXXX)  # mode 0700
HUFU_BROKER=unix:$dir/broker.sock
HUFU_AUDIT_DIR=$dir/audit
export HUFU_BROKER HUFU_AUDIT_DIR
unset HUFU_HUFUD HUFU_STRICT HUFU_DEVICES HUFU_DEVICE_CAPACITY
loader=''
team=''
sharer=''

broker_pid() {
  "$hufu" doctor | sed -n 's/.*yours .* running: pid \([0-9]*\),.*/\1/p'
}

# Ends the broker in good order and waits until it is gone (it is not our child).
end_broker() {
  broker=$(broker_pid)
  [ -n "$broker" ] || return 0
  kill -TERM "$broker" 2>/dev/null || return 0
  timeout 20 tail --pid="$broker" -s 0.05 -f /dev/null
}

clean_up() {
  status=$?
  trap - EXIT
  exec 3>&- 4<&-
  for child in $loader $team $sharer; do
    kill -KILL "$child" 2>/dev/null || :
    wait "$child" 2>/dev/null || :
  done
  end_broker || status=1
  rm -rf "$dir"
  [ "$status" -eq 0 ] || echo "demo: FAILED"
  exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

fail() {
  echo "demo: $*" >&2
  exit 1
}

# Reads the four reports from the team; each must have the file's hash, all of them one inode, and
# none may have grown by more than a page for each MiB, or 64 KiB.
inodes=
check_reports() {
  for worker in 1 2 3 4; do
    read -r report <&4 || fail "worker $worker has ended"
    echo "   $report"
    # worker N pid P sha256 H inode DEV INO grew K KiB
    # shellcheck disable=SC2086
    set -- $report
    [ "${6:-}" = "$sha256" ] || fail "worker $worker read other bytes"
    [ -z "$inodes" ] || [ "$inodes" = "$8 $9" ] || fail "worker $worker has another inode mapped"
    inodes="$8 $9"
    shift 9
    [ "$2" -le "$allowed_kib" ] || fail "worker $worker grew by $2 KiB, more than $allowed_kib KiB"
  done
}

size=$(stat -L -c %s "$FILE")
sha256=$(sha256sum <"$FILE" | cut -d ' ' -f 1)
allowed_kib=$((4 * ((size + 1048575) / 1048576)))
# A process's first import needs a few pages for its books, whatever the size: 24 KiB were seen.
[ "$allowed_kib" -ge 64 ] || allowed_kib=64
echo "== the file: $FILE, $size bytes"
echo "   sha256 $sha256"

echo "== four workers start; a loader shares the file with them and nobody else"
mkfifo "$dir/orders" "$dir/reports" "$dir/key"
"$examples/02_workers" 4 <"$dir/orders" >"$dir/reports" &
team=$!
exec 3>"$dir/orders" 4<"$dir/reports"
read -r word pids <&4 || fail "the workers have ended"
[ "$word" = pids ] || fail "unexpected: $word"
allow=
for pid in $pids; do
  allow="$allow --allow-pid $pid"
done
# shellcheck disable=SC2086
"$hufu" share "$FILE" $allow >"$dir/key" &
loader=$!
read -r key <"$dir/key" || fail "the loader did not share"

echo "== the workers open the key: same bytes, one inode, no copy"
echo "$key" >&3
check_reports
loader_maps=$(grep -c " ${inodes% *} ${inodes#* } " "/proc/$loader/maps" || :)
[ "$loader_maps" -ge 1 ] || fail "the loader does not map inode $inodes"
echo "   and the loader, pid $loader, maps inode $inodes too"

echo "== a process that has the key but is not on the list"
if refusal=$(echo "$key" | "$hufu" open --sha256 2>&1); then
  fail "an unlisted process opened it"
fi
echo "   $refusal"

echo "== the loader is killed (SIGKILL); the workers read everything again"
kill -KILL "$loader"
wait "$loader" 2>/dev/null || :
loader=
echo again >&3
check_reports
exec 3>&-  # The end of their orders.
wait "$team" || fail "a worker failed"
team=

echo "== what the audit log has of it"
end_broker  # It writes what it has yet to write.
"$hufu" audit show >"$dir/log"
cut -c 12- "$dir/log" | sed 's/^/   /'
imports=$(grep -c ' IMPORT allow ' "$dir/log" || :)
refused=$(grep -c ' IMPORT deny/pid ' "$dir/log" || :)
if [ "$imports" -ne 4 ] || [ "$refused" -ne 1 ]; then
  fail "the log has $imports imports and $refused refusals, not 4 and 1"
fi
"$hufu" audit verify >"$dir/verdict" || fail "the log does not verify: $(cat "$dir/verdict")"
sed 's/^/   /' "$dir/verdict"

echo "== the same hand-over, by key and through a pipe"
"$hufu" share "$FILE" >"$dir/key" 2>/dev/null &
sharer=$!
read -r key <"$dir/key" || fail "sharing failed"
echo "$key" | "$examples/03_handover_cost" "$FILE" | sed 's/^/   /'
kill -TERM "$sharer"
wait "$sharer" || fail "the sharer did not end well"
sharer=

echo "demo: ok. 4 processes read $size bytes in one place, 1 was refused, the exporter's death" \
     "harmed nobody, and the log proves it."
