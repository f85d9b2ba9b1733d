#!/bin/sh
# usage: sh tools/test.sh
#
# From a fresh Debian 12 and this source tree to every test's result: installs what is missing,
# builds the preset dev, runs all of ctest. The exit status is 0 if all of it passed.
set -eu
cd "$(dirname "$0")/.."

sh tools/install_deps.sh
cmake --preset dev
cmake --build --preset dev
ctest --preset dev
