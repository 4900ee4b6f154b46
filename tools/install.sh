#!/usr/bin/env bash
# Builds Remat and installs it for programs outside of Bazel: tools/install.sh PREFIX [BAZEL OPTION...]
#
#   PREFIX/bin/remat-opt
#   PREFIX/lib/libremat.so, libremat_runtime.so         for programs that optimise, and for those that only train
#   PREFIX/include/remat/...                            #include <remat/remat.h>
#   PREFIX/lib/cmake/Remat, PREFIX/lib/pkgconfig        find_package(Remat), pkg-config remat or remat_runtime
#
# --config=cpu leaves CUDA out; LIBTORCH=FOLDER builds for another LibTorch than .venv's. PREFIX may be moved later on.
# The libraries find LibTorch where the program that loads them has it; remat-opt finds the one it was built with where
# that was then. It can be run again: every file is replaced at once.
#
# `PREFIX --files REMAT_OPT LIBREMAT LIBREMAT_RUNTIME` takes built files in place of building them. BAZEL may hold the
# command of Bazel with its startup options.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here
readonly root=$here/..
readonly public_headers=(
  passes/remat.h passes/activation_checkpointing.h passes/register_pass.h passes/options.h passes/errors.h
  ir/plan.h ir/remark.h runtime/runtime.h
)

die() {
  echo "install: $*" >&2
  exit 1
}
usage() {
  echo "install: $*; usage: tools/install.sh PREFIX [BAZEL OPTION...]" >&2
  exit 2
}

temporary=
trap '[[ -z "$temporary" ]] || rm -f "$temporary"' EXIT

# start TARGET: an empty file beside it, $temporary, which `finish TARGET MODE` puts in its place.
start() {
  local folder
  folder=$(dirname "$1")
  mkdir -p "$folder" || die "can't make the folder $folder (see above)"
  temporary=$(mktemp "$folder/.${1##*/}.XXXXXX") || die "can't write into $folder (see above)"
}
finish() {
  chmod "$2" "$temporary"
  mv -fT -- "$temporary" "$1" || die "can't write $1 (see above)"
  temporary=
  echo "install: $1"
}

install_tool() {
  start "$2"
  cp -- "$1" "$temporary" || die "can't write $2 (see above)"
  finish "$2" 755
}

# Without run paths: they lead to the LibTorch of the build, and a program shall have one LibTorch, its own.
# libtorch_cuda brings its libcudart, from beside it.
install_library() {
  start "$2"
  cp -- "$1" "$temporary" || die "can't write $2 (see above)"
  chmod u+w "$temporary"
  patchelf --remove-rpath "$temporary" || die "can't write $2 (see above)"
  local needed
  for needed in $(patchelf --print-needed "$temporary"); do
    if [[ "$needed" == libcudart.so.* ]]; then
      patchelf --remove-needed "$needed" "$temporary" || die "can't write $2 (see above)"
    fi
  done
  finish "$2" 755
}

# Prints the headers of the project that the given ones include, and themselves.
with_included() {
  local seen=" " header
  while (($# > 0)); do
    header=$1
    shift
    [[ "$seen" != *" $header "* ]] || continue
    seen+="$header "
    echo "$header"
    local included
    mapfile -t included < <(sed -nE 's,^#include "((ir|passes|runtime)/[^"]+)".*,\1,p' "$root/$header")
    set -- "$@" "${included[@]}"
  done
}

# Installed headers include each other below remat/: nobody else's ir/ or runtime/ is met.
install_header() {
  start "$2"
  sed -E 's,^#include "(ir|passes|runtime)/,#include "remat/\1/,' "$1" >"$temporary" || die "can't write $2 (see above)"
  finish "$2" 644
}

install_headers() {
  local folder=$1 header
  local installed=(remat.h)
  install_header "$here/install/remat.h" "$folder/remat.h"
  for header in $(with_included "${public_headers[@]}"); do
    install_header "$root/$header" "$folder/$header"
    installed+=("$header")
  done
  # What an older version had more.
  while read -r header; do
    [[ " ${installed[*]} " == *" $header "* ]] || rm -f -- "$folder/$header"
  done < <(cd "$folder" && find . -name '*.h' -printf '%P\n')
}

# fill TEMPLATE TARGET [NAME=VALUE]...: replaces @NAME@.
fill() {
  local text target=$2
  text=$(<"$1")
  shift 2
  local pair
  for pair in "$@"; do
    text=${text//"@${pair%%=*}@"/"${pair#*=}"}
  done
  start "$target"
  echo "$text" >"$temporary" || die "can't write $target (see above)"
  finish "$target" 644
}

install_files() {
  local prefix=$1 tool=$2 remat=$3 runtime=$4
  local file
  for file in "$tool" "$remat" "$runtime"; do
    [[ -f "$file" ]] || die "$file: no such file"
  done
  command -v patchelf >/dev/null || die "patchelf is missing: apt-get install patchelf, or run tools/setup.sh"
  local versions version torch
  versions=$("$tool" --version) || die "$tool doesn't run (see above)"
  [[ "$versions" =~ ^remat-opt\ ([0-9.]+),\ LibTorch\ ([0-9]+\.[0-9]+) ]] || die "$tool: unknown version '$versions'"
  version=${BASH_REMATCH[1]} torch=${BASH_REMATCH[2]}
  local libraries
  libraries=$(patchelf --print-needed "$runtime" | sed -nE 's,^lib(torch.*|c10.*)\.so$,\1,p' | paste -sd ' ')

  mkdir -p "$prefix" || die "can't make the folder $prefix (see above)"
  prefix=$(cd "$prefix" && pwd)
  [[ -w "$prefix" ]] || die "$prefix is not writable: choose another PREFIX, or run this as its owner"
  install_tool "$tool" "$prefix/bin/remat-opt"
  install_library "$remat" "$prefix/lib/libremat.so"
  install_library "$runtime" "$prefix/lib/libremat_runtime.so"
  install_headers "$prefix/include/remat"
  local values=("VERSION=$version" "TORCH_MINOR=$torch" "TORCH_LIBRARIES=$libraries" "TORCH_LINK=-l${libraries// / -l}")
  fill "$here/install/RematConfig.cmake.in" "$prefix/lib/cmake/Remat/RematConfig.cmake" "${values[@]}"
  fill "$here/install/RematLibTorch.cmake" "$prefix/lib/cmake/Remat/RematLibTorch.cmake"
  fill "$here/install/RematConfigVersion.cmake.in" "$prefix/lib/cmake/Remat/RematConfigVersion.cmake" "${values[@]}"
  fill "$here/install/remat.pc.in" "$prefix/lib/pkgconfig/remat.pc" "${values[@]}" NAME=remat \
    "DESCRIPTION=Rematerialization for TorchScript: optimises models and trains them"
  fill "$here/install/remat.pc.in" "$prefix/lib/pkgconfig/remat_runtime.pc" "${values[@]}" NAME=remat_runtime \
    "DESCRIPTION=Rematerialization for TorchScript: trains optimised models"
  echo "install: Remat $version for LibTorch $torch is in $prefix"
}

[[ $# -ge 1 && -n "$1" && "$1" != -* ]] || usage "PREFIX is missing"
prefix=$1
shift
if [[ "${1-}" == --files ]]; then
  [[ $# -eq 4 ]] || usage "--files needs REMAT_OPT LIBREMAT LIBREMAT_RUNTIME"
  install_files "$prefix" "$2" "$3" "$4"
  exit
fi
# Before minutes of building.
mkdir -p "$prefix" || die "can't make the folder $prefix (see above)"
prefix=$(cd "$prefix" && pwd)
[[ -w "$prefix" ]] || die "$prefix is not writable: choose another PREFIX, or run this as its owner"
cd "$root"
tools/setup.sh
bazel=${BAZEL:-bazel}
# shellcheck disable=SC2086  # BAZEL may hold options
$bazel build "$@" //tools:remat-opt //passes:libremat.so //runtime:libremat_runtime.so
install_files "$prefix" bazel-bin/tools/remat-opt bazel-bin/passes/libremat.so bazel-bin/runtime/libremat_runtime.so
