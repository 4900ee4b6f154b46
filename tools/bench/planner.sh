#!/usr/bin/env bash
# Plans synthetic training steps of 500, 2,500 and 20,000 nodes and writes time, gap to the proved bound and
# memory of the planner to tools/bench/results/planner.json. With --quick: 500 and 2,500 nodes. Exit code 1: a limit
# was missed. See tools/bench/planner.py --help.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tools/setup.sh
bazel build //tools/bench:planner_bench
exec .venv/bin/python3 tools/bench/planner.py "$@"
