#!/bin/sh
# usage: sh tools/install_deps.sh [PACKAGE ...]
#
# Installs what building, testing and linting Hufu needs on Debian 12, and PACKAGEs besides. Only
# what is missing is installed, so a second run needs no network and no rights. This is the one list
# of our packages; tools/test.sh, tools/demo.sh and .ci/run call it.
set -eu

# libclang-rt-14-dev: the sanitizers and libFuzzer of clang, which only recommends it.
packages="
  g++ clang libclang-rt-14-dev cmake ninja-build make pkg-config python3 git
  libgtest-dev libbenchmark-dev
  libsodium-dev libssl-dev libseccomp-dev
  libfmt-dev libcli11-dev libtomlplusplus-dev nlohmann-json3-dev
  clang-format clang-tidy strace"

# Word splitting makes a list of $packages, here and below.
# shellcheck disable=SC2086
if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  echo "install_deps: no apt-get here, so nothing is installed; on Debian 12 it would be:" \
       $packages "$@" >&2
  exit 0  # whoever has them all under other names can go on; cmake says what is missing
fi

# shellcheck disable=SC2086
installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $packages "$@" 2>/dev/null |
            sed -n 's/^installed //p')
missing=
for package in $packages "$@"; do
  echo "$installed" | grep -qxF "$package" || missing="$missing $package"
done
if [ -z "$missing" ]; then
  exit 0
fi

as_root=
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "install_deps: missing packages, and neither root nor sudo to install them. As root, run:" >&2
    echo "  apt-get update && apt-get install$missing" >&2
    exit 1
  fi
  as_root=sudo
fi

# apt_get ARGUMENT...: no questions; patient with a slow mirror and with another apt that runs.
apt_get() {
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 \
    -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 "$@" </dev/null
}

echo "install_deps: installing$missing"
apt_get update || echo "install_deps: apt-get update failed; trying with the lists there are" >&2
# shellcheck disable=SC2086
apt_get install -y --no-install-recommends $missing >/dev/null
