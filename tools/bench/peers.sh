#!/usr/bin/env bash
# Trains ResNet-50, ViT-S, GPT-2 and DenseNet-121 under PyTorch checkpoints and under Remat at the same memory, side
# by side, and writes what was measured to tools/bench/results/peers.json and peers.svg. With --quick: batch 2, to see
# that all of it works. See tools/bench/peers.py --help. A full run means something only on an otherwise idle machine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tools/setup.sh
bazel build //tools:remat-opt //runtime:libremat_runtime.so //tools/bench:libpeers_counter.so
exec .venv/bin/python3 tools/bench/peers.py "$@"
