#!/bin/bash
# usage: run.sh CASE BUILD_DIR SOURCE_DIR
#
# Builds and runs small clients against a tree installed from BUILD_DIR, the way users do. The case
# `install` makes that tree and moves it once, which must not matter; the others use it.
set -euo pipefail
case=$1 build=$2 source=$3
here=$source/tests/consumer
prefix=$build/consumer/moved
work=$build/consumer/$case
cc=${CC:-cc} cxx=${CXX:-c++}
strict=(-Wall -Wextra -Wpedantic -Werror)

# Alone: these tests are about linking, and must not start a broker.
export HUFU_BROKER=none
unset LD_LIBRARY_PATH ASCEND_HOME_PATH ASCEND_INSTALL_PATH

rm -rf "$work"
mkdir -p "$work"
cd "$work"

# client LANGUAGE FLAGS...: builds client.c in that language as ./client
client() {
  if [ "$1" = c11 ]; then
    "$cc" -std=c11 "${strict[@]}" "$here/client.c" -o client "${@:2}"
  else
    "$cxx" -std=c++11 "${strict[@]}" -x c++ "$here/client.c" -x none -o client "${@:2}"
  fi
}

case $case in
  install)
    rm -rf "$prefix"
    cmake --install "$build" --prefix "$work/prefix" >/dev/null
    mv "$work/prefix" "$prefix"
    ! grep -rIl "$work/prefix" "$prefix"  # nothing remembers where it was installed
    ;;
  setenv)
    set +u
    for _ in 1 2; do source "$prefix/bin/setenv.bash"; done
    set -u
    [ "$ASCEND_HOME_PATH" = "$prefix" ] && [ "$ASCEND_INSTALL_PATH" = "$prefix" ]
    [ "$LD_LIBRARY_PATH" = "$prefix/lib64" ]  # once
    [ "$(tr : '\n' <<<"$PATH" | grep -cx "$prefix/bin")" = 1 ]
    for name in ascendcl acl_rt; do  # as CANN's own samples are built
      for language in c11 cxx11; do
        client $language -I"$ASCEND_HOME_PATH/include" -L"$ASCEND_HOME_PATH/lib64" -l$name
        readelf -d client | grep -q "NEEDED.*\[lib$name\.so\]"
        ./client
      done
      client c11 -I"$ASCEND_HOME_PATH/include" "$ASCEND_HOME_PATH/lib64/lib$name.so"
      ./client
    done
    ;;
  cxx)  # the C++ face, from each standard that it is for
    for standard in 17 20; do
      "$cxx" -std=c++$standard "${strict[@]}" -Wconversion -Wshadow "$here/objects.cc" -o objects \
        -I"$prefix/include" -L"$prefix/lib64" -lhufu -Wl,-rpath,"$prefix/lib64"
      ./objects
    done
    ;;
  find_package)
    cmake -S "$here/find_package" -B . -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
    cmake --build . >/dev/null
    ./client_c
    ./client_cxx
    ;;
  pkg_config)
    export PKG_CONFIG_PATH=$prefix/lib64/pkgconfig
    for language in c11 cxx11; do
      # pkg-config prints shell words, with the blanks of a path escaped; eval is what reads those.
      words=()
      eval "words+=($(pkg-config --cflags --libs hufu))"
      client $language "${words[@]}" -Wl,-rpath,"$prefix/lib64"
      ./client
    done
    ;;
  dlopen)
    "$cc" -std=c11 -Wall -Wextra -Werror "$here/opened.c" -o opened -ldl
    ./opened "$prefix"/lib64/lib{ascendcl,acl_rt,acl_tdt_queue,acl_tdt_channel}.so{,.1} \
             "$prefix"/lib64/libhufu.so.0
    ;;
  two_names)
    "$cc" -std=c11 -Wall -Wextra -Werror "$here/two_names.c" -o two_names -I"$prefix/include" \
          -L"$prefix/lib64" -Wl,--no-as-needed -lascendcl -lacl_rt -ldl -Wl,-rpath,"$prefix/lib64"
    python3 "$source/tools/generate_abi.py" --list-names | ./two_names "$prefix/lib64"
    ;;
  *)
    echo "no such case: $case" >&2
    exit 2
    ;;
esac
