#!/usr/bin/env bash
# Sets the machine up, builds, optimises a ResNet-50 to half of its training memory and measures it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ $# -eq 0 ]] || {
  echo "quickstart: takes no arguments" >&2
  exit 2
}

step() { echo "quickstart: $*"; }

step "takes about 8 minutes of work on two idle cores beside the build, 4 GB of memory and 6 GB of disk"
step "setting up: what is missing is installed"
tools/setup.sh

step "building remat-opt and the runtime library (the first time this takes long)"
bazel build //tools:remat-opt //runtime:libremat_runtime.so

out=quickstart
input=16x3x224x224
model=$out/resnet50.pt
optimized=$out/resnet50.remat.pt
mkdir -p "$out"

step "making $model"
.venv/bin/python3 tools/make_model.py resnet50 "$model"

step "recording steps, planning, and measuring the result: --input $input --budget 50%"
bazel-bin/tools/remat-opt optimize "$model" -o "$optimized" --input "$input" --budget 50% --dump-ir "$out"

step "verifying it: training steps of both, interleaved (the longest step)"
# 3: measured above the budget, 4: a difference was found; the table shows both.
status=0
bazel-bin/tools/remat-opt verify "$model" "$optimized" --input "$input" --rounds 2 --json >"$out/verify.json" || status=$?
if ((status != 0 && status != 3 && status != 4)); then
  exit "$status"
fi
python3 tools/quickstart_table.py "$out/verify.json"
echo
echo "IR before   $PWD/$out/before.ir"
echo "IR after    $PWD/$out/after.ir"
echo "optimised   $PWD/$optimized"
exit "$status"
