#!/usr/bin/env bash
# Sets the machine up, runs every test, and ends with `N passed, N failed, N skipped`, counted over test cases.
# Arguments go to `bazel test`; targets among them replace //... : tools/test.sh //tests/ir/... --config=cpu
# Without targets it tests tests/consumers/bazel as well, a workspace of its own that uses this one from outside. That
# compiles ir/, passes/ and runtime/ a second time, for another path.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools/setup.sh --tests

targets=(//...)
for argument in "$@"; do
  if [[ "$argument" == //* || "$argument" == :* ]]; then
    targets=()
  fi
done

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
status=0

# run_bazel EVENTS ARGUMENT...: `bazel test` in this folder; keeps the first bad status.
run_bazel() {
  local events=$1 ended=0
  shift
  echo "test: bazel test $*"
  bazel test --keep_going --build_event_json_file="$events" "$@" || ended=$?
  # 3: tests failed, which the count shows; 4: the targets hold no test.
  if ((ended != 0 && ended != 3)); then
    echo "test: bazel ended with status $ended"
  fi
  ((status != 0)) || status=$ended
}

run_bazel "$folder/events.json" "$@" "${targets[@]}"
if [[ "${targets[*]}" == //... ]]; then
  pushd tests/consumers/bazel >/dev/null
  run_bazel "$folder/consumer_events.json" "$@" //...
  # A second server holds memory.
  bazel shutdown
  popd >/dev/null
fi
count_status=0
.venv/bin/python3 tools/count_tests.py "$folder"/*events.json || count_status=$?
((status == 0)) || exit "$status"
exit "$count_status"
