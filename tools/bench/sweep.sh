#!/usr/bin/env bash
# Twenty budgets from the original's peak down to the lowest reachable: is each kept when measured, is the prediction
# right, is the curve monotone? See tools/bench/sweep.py --help.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tools/setup.sh
bazel build //tools:remat-opt //runtime:libremat_runtime.so
exec .venv/bin/python3 tools/bench/sweep.py "$@"
