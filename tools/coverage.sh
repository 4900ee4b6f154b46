#!/usr/bin/env bash
# Line coverage of ir/, passes/ and runtime/ by their C++ tests: tools/coverage.sh [TARGET...] [BAZEL OPTION...]
# Builds with gcov's counters, runs the tests, prints a table. Needs gcov of the compiler that builds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

targets=(//tests/ir/... //tests/passes/... //tests/runtime/...)
for argument in "$@"; do
  if [[ "$argument" == //* ]]; then
    targets=()
  fi
done

objects=$(bazel info --config=coverage bazel-bin 2>/dev/null)
execution_root=$(bazel info --config=coverage execution_root 2>/dev/null)
# Counts of earlier runs would be added to.
find "$objects" -name '*.gcda' -delete 2>/dev/null || true

# Bazel compiles in /proc/self/cwd, which is another folder for a test: the counts go to where the objects are.
counts=("--test_env=GCOV_PREFIX=$execution_root" --test_env=GCOV_PREFIX_STRIP=3)
status=0
bazel test --config=coverage --test_lang_filters=cc --build_tests_only --keep_going --nocache_test_results \
  "${counts[@]}" "$@" "${targets[@]}" || status=$?
python3 tools/coverage.py "$objects" "$execution_root" ir passes runtime || status=$?
exit "$status"
