#!/usr/bin/env bash
# Checks Remat on a GPU, on a machine that has Python with torch, torchvision, timm and transformers, and neither Bazel
# nor a network:
#
#   tools/gpu_check.sh pack FOLDER        here: builds, and gathers what the check needs (under 60 MiB)
#   FOLDER/gpu_check.sh run OUT [...]     there, within 5 minutes: tests, training, OUT/gpu_check.json and .md
#
# `run` takes --device (cuda), --tiny (small models: does the check itself work?), --python (python3) and what
# gpu_check/check.py --help says. `pack FOLDER --files REMAT_OPT RUNTIME PYTHON [TEST...]` takes built files in place of
# building them; PYTHON is one whose torch they were linked with. BAZEL may hold Bazel's command with its startup options.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here
readonly most_mib=60

die() {
  echo "gpu_check: $*" >&2
  exit 2
}

# Libraries of the system that another one may lack, where these are taken; LibTorch and CUDA come with the torch there.
copy_system_libraries() {
  local library
  for library in libtinfo.so.6 libz.so.1; do
    local path
    path=$(ldd "$1" | awk -v name="$library" '$1 == name { print $3 }')
    [[ -z "$path" ]] || cp -L "$path" "$2/"
  done
}

pack_files() {
  local folder=$1 tool=$2 runtime=$3 python=$4
  shift 4
  [[ -z "$(ls -A "$folder")" || -e "$folder/linked.json" ]] || die "$folder holds something else: give a new folder"
  rm -rf "${folder:?}/bin" "${folder:?}/lib" "${folder:?}/runfiles" "${folder:?}/gpu_check"
  mkdir -p "$folder/bin" "$folder/lib" "$folder/runfiles"
  "$python" -c 'import json, torch; print(json.dumps({"torch": torch.__version__, "git": torch.version.git_version}))' \
    >"$folder/linked.json"
  strip -o "$folder/bin/remat-opt" "$tool"
  strip -o "$folder/lib/libremat_runtime.so" "$runtime"
  mkdir -p "$folder/lib/system"
  copy_system_libraries "$tool" "$folder/lib/system"
  local test file
  for test in "$@"; do
    strip -o "$folder/bin/$(basename "$test")" "$test"
    # Libraries that a test loads, by their path in the workspace.
    [[ -d "$test.runfiles/remat" ]] || continue
    while read -r file; do
      mkdir -p "$folder/runfiles/$(dirname "$file")"
      strip -o "$folder/runfiles/$file" "$test.runfiles/remat/$file"
    done < <(cd "$test.runfiles/remat" && find . -name '*.so' -not -path './.venv/*')
  done
  cp "$here/gpu_check.sh" "$folder/"
  mkdir -p "$folder/gpu_check"
  cp "$here"/gpu_check/*.py "$here/bench/parity.py" "$folder/gpu_check/"
  local mib
  mib=$(du -sm "$folder" | cut -f1)
  ((mib < most_mib)) || die "$folder holds $mib MiB, more than $most_mib; pack fewer tests"
  echo "gpu_check: $folder: $# tests, $mib MiB, linked with $(cat "$folder/linked.json")"
}

pack() {
  [[ $# -ge 1 ]] || die "pack needs a folder"
  mkdir -p "$1"
  local folder
  folder=$(cd "$1" && pwd)
  shift
  if [[ "${1-}" == --files ]]; then
    shift
    [[ $# -ge 3 ]] || die "--files needs REMAT_OPT RUNTIME PYTHON [TEST...]"
    pack_files "$folder" "$@"
    return
  fi
  [[ $# -eq 0 ]] || die "pack: $1 is unknown"
  cd "$here/.."
  local bazel=${BAZEL:-bazel} targets
  # shellcheck disable=SC2086  # BAZEL may hold options
  targets=$($bazel query 'filter("_cuda_test$", kind("cc_test rule", //tests/...))' 2>/dev/null)
  # shellcheck disable=SC2086
  $bazel build //tools:remat-opt //runtime:libremat_runtime.so $targets
  local tests=() target
  for target in $targets; do
    target=${target#//}
    tests+=("bazel-bin/${target/://}")
  done
  pack_files "$folder" bazel-bin/tools/remat-opt bazel-bin/runtime/libremat_runtime.so .venv/bin/python3 "${tests[@]}"
}

run() {
  [[ -e "$here/linked.json" ]] || die "run it from a packed folder: tools/gpu_check.sh pack FOLDER; FOLDER/gpu_check.sh run OUT"
  local arguments=() python=python3
  while [[ $# -gt 0 ]]; do
    if [[ "$1" == --python ]]; then
      [[ $# -ge 2 ]] || die "--python needs a program"
      python=$2
      shift 2
    else
      arguments+=("$1")
      shift
    fi
  done
  exec "$python" "$here/gpu_check/check.py" "${arguments[@]}"
}

case "${1-}" in
  pack | run) "$@" ;;
  *) die "say pack FOLDER, or run OUT" ;;
esac
