#!/usr/bin/env bash
# Optimises ResNet-50, ViT-S, GPT-2 and MobileNet-v2, trains original and optimised side by side, and writes what was
# measured to tools/bench/results. With --quick: batch 2 and no limits on memory and time, to see that all of it works.
# See tools/bench/main_models.py --help. Peaks and times of a full run mean something only on an otherwise idle machine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tools/setup.sh
bazel build //tools:remat-opt //runtime:libremat_runtime.so
exec .venv/bin/python3 tools/bench/main_models.py "$@"
