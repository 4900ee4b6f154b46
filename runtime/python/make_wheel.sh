#!/usr/bin/env bash
# Makes a wheel of the package and what was built for it: make_wheel.sh PYTHON OUTDIR LIBRARY.so _build.py. PYTHON is one
# with setuptools; nothing is downloaded. tools/wheel.sh builds first.
set -euo pipefail
python=$1 folder=$2 library=$3 build_info=$4
here=$(dirname "${BASH_SOURCE[0]}")

command -v patchelf >/dev/null || {
  echo "make_wheel: no patchelf: run tools/setup.sh" >&2
  exit 1
}
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir "$stage/remat"
cp -L "$here"/remat/*.py "$here/remat/py.typed" "$stage/remat"
cp -L "$here/pyproject.toml" "$here/setup.py" "$here/../../LICENSE" "$stage"
cp -fL "$library" "$build_info" "$stage/remat"
chmod -R u+w "$stage"
# Not this machine's torch, but the one that it is installed beside.
patchelf --set-rpath '$ORIGIN/../torch/lib' "$stage/remat/$(basename "$library")"

"$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir "$folder" "$stage"
