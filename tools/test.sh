#!/usr/bin/env bash
# Sets the machine up, runs every test, and ends with `N passed, N failed, N skipped`, counted over test cases.
# Arguments go to `bazel test`; targets among them replace //... : tools/test.sh //tests/ir/... --config=cpu
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools/setup.sh --tests

targets=(//...)
for argument in "$@"; do
  if [[ "$argument" == //* || "$argument" == :* ]]; then
    targets=()
  fi
done

events=$(mktemp)
trap 'rm -f "$events"' EXIT
echo "test: bazel test ${*} ${targets[*]}"
status=0
bazel test --keep_going --build_event_json_file="$events" "$@" "${targets[@]}" || status=$?
# 3: tests failed, which the count shows; 4: the targets hold no test.
if ((status != 0 && status != 3)); then
  echo "test: bazel ended with status $status"
fi
count_status=0
.venv/bin/python3 tools/count_tests.py "$events" || count_status=$?
((status == 0)) || exit "$status"
exit "$count_status"
