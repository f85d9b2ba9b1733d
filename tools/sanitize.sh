#!/bin/sh
# usage: sh tools/sanitize.sh asan|tsan
#
# Builds a sanitizer preset and runs its tests. Without address-space randomisation where that may
# be switched off: where the kernel randomises more than 28 bits (vm.mmap_rnd_bits), it can put a
# mapping where the sanitizers of gcc 12 want their shadow memory, and the program dies at its start.
set -eu
cd "$(dirname "$0")/.."

fixed=
if setarch -R true 2>/dev/null; then
  fixed="setarch -R"
fi
$fixed cmake --workflow --preset "$1"
