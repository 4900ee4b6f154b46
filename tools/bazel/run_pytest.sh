#!/usr/bin/env bash
# Runs pytest for remat_py_test: run_pytest.sh PYTHON REMAT_OPT REMAT_RUNTIME [NAME=PATH]... FILE... ("-" for a
# binary not needed; NAME becomes a variable of the environment).
set -euo pipefail
python=$1
if [[ "$2" != - ]]; then
  export REMAT_OPT="$PWD/$2" REMAT_RUNTIME="$PWD/$3"
fi
shift 3
while [[ "${1-}" == *=* ]]; do
  export "${1%%=*}=$PWD/${1#*=}"
  shift
done
[[ -x "$python" ]] || {
  echo "no $python: run tools/setup.sh" >&2
  exit 1
}
# Tests write to their own folder and never ask a model hub.
export TMPDIR="${TEST_TMPDIR:-/tmp}" HOME="${TEST_TMPDIR:-/tmp}" PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1
exec "$python" -m pytest -p no:cacheprovider -v -ra --rootdir "$PWD" \
  --basetemp "$TMPDIR/pytest" --junitxml "${XML_OUTPUT_FILE:-$TMPDIR/test.xml}" "$@"
