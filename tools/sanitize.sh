#!/usr/bin/env bash
# Runs the C++ tests under a sanitizer: tools/sanitize.sh asan|ubsan|tsan [TARGET...] [BAZEL OPTION...]
# Without targets all of them; each sanitizer compiles everything anew the first time. Python tests are left out: they
# would load our instrumented library into a Python that is not. Two at once: tools/sanitize.sh asan --config=ubsan
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

sanitizer=${1:-}
case "$sanitizer" in
  asan | ubsan | tsan) shift ;;
  *)
    echo "usage: tools/sanitize.sh asan|ubsan|tsan [TARGET...] [BAZEL OPTION...]" >&2
    exit 2
    ;;
esac

targets=(//tests/...)
for argument in "$@"; do
  if [[ "$argument" == //* ]]; then
    targets=()
  fi
done

# Tests run in another folder: the suppressions are named by their whole path.
lists=$PWD/tools/sanitizers
options=(
  "--test_env=ASAN_OPTIONS=strict_string_checks=1:detect_stack_use_after_return=1"
  "--test_env=LSAN_OPTIONS=suppressions=$lists/lsan.supp:print_suppressions=0"
  "--test_env=UBSAN_OPTIONS=print_stacktrace=1"
  "--test_env=TSAN_OPTIONS=suppressions=$lists/tsan.supp:second_deadlock_stack=1:die_after_fork=0"
)
# ThreadSanitizer doesn't know libgomp: kernels that OpenMP spreads over threads look like races. Our threads stay.
if [[ "$sanitizer" == tsan ]]; then
  options+=(--test_env=OMP_NUM_THREADS=1)
fi
# The planner's tests take many times longer than usual.
exec bazel test --config="$sanitizer" --test_lang_filters=cc --build_tests_only --keep_going --test_timeout=3600 \
  "${options[@]}" "$@" "${targets[@]}"
