#!/usr/bin/env bash
# Builds the Python wheel: tools/wheel.sh [OUTDIR] [BAZEL OPTION]... The last line is its path, in OUTDIR (dist). The wheel
# is for the minor version of torch that it was built with, and for Linux with a C library like this machine's or newer.
# `tools/wheel.sh dist --config=cpu` leaves the CUDA parts out.
set -euo pipefail

folder=dist
if [[ $# -gt 0 && "$1" != --* ]]; then
  folder=$1
  shift
fi
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools/setup.sh
bazel build "$@" //runtime/python:package
built=$(bazel info "$@" bazel-bin 2>/dev/null)/runtime/python/remat
runtime/python/make_wheel.sh .venv/bin/python3 "$folder" "$built/libremat_python.so" "$built/_build.py"
ls -t "$folder"/remat-*.whl | head -n 1
