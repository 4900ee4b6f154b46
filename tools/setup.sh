#!/usr/bin/env bash
# Brings this machine to where Remat builds and tests: apt packages, .venv with pinned versions, Bazel's disk cache.
# What is there already is left alone. `tools/setup.sh --tests` adds what only tests need (a browser for reports, CMake),
# `--lint` what the format check and clang-tidy need.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { echo "setup: $*"; }
die() {
  echo "setup: $*" >&2
  exit 1
}

# One set-up at a time: a second caller waits for the first.
exec 9<"tools/setup.sh"
flock 9

apt_packages=(
  bazel-bootstrap bazel-rules-java bazel-rules-proto bazel-platforms bazel-skylib build-essential git
  llvm-14-dev zlib1g-dev libtinfo-dev
  libgtest-dev libgmock-dev libcli11-dev patchelf
)
for option in "$@"; do
  case "$option" in
    --tests) apt_packages+=(chromium cmake ninja-build pkg-config) ;;
    --lint) apt_packages+=(clang-format clang-tidy) ;;
    *) die "unknown option '$option' (there are --tests and --lint)" ;;
  esac
done
if ! command -v python3 >/dev/null || ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
  apt_packages+=(python3 python3-venv)
fi

install_apt_packages() {
  command -v dpkg-query >/dev/null || die "this is no Debian: please install ${apt_packages[*]} yourself"
  local installed missing=() package
  installed=$(dpkg-query -W -f '${Status} ${Package}\n' "${apt_packages[@]}" 2>/dev/null |
    sed -n 's/^install ok installed //p') || true
  for package in "${apt_packages[@]}"; do
    grep -qx -- "$package" <<<"$installed" || missing+=("$package")
  done
  if ((${#missing[@]} == 0)); then
    say "apt packages: all there"
    return
  fi
  local as_root=(env)
  if ((EUID != 0)); then
    command -v sudo >/dev/null || die "as root, please run: apt-get install ${missing[*]}"
    as_root=(sudo env)
  fi
  local apt=("${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get -q -y)
  say "apt packages: installing ${missing[*]}"
  "${apt[@]}" update
  "${apt[@]}" install --no-install-recommends "${missing[@]}"
}

# Prints the requirements that .venv does not meet.
unmet_requirements() {
  .venv/bin/python3 - tools/requirements.txt <<'PYTHON'
import importlib.metadata
import sys

for line in open(sys.argv[1]):
    name, _, wanted = line.strip().partition("==")
    try:
        found = importlib.metadata.version(name).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        found = None
    if name and found != wanted:
        print(f"{name}=={wanted}")
PYTHON
}

install_python_packages() {
  if ! .venv/bin/python3 -m pip --version >/dev/null 2>&1; then
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || die "python3 is older than 3.10"
    say ".venv: creating it"
    python3 -m venv --clear .venv
  fi
  local unmet
  unmet=$(unmet_requirements)
  if [[ -z "$unmet" ]]; then
    say ".venv: all there"
    return
  fi
  say ".venv: installing $(echo "$unmet" | paste -sd ' ') (torch takes 5 GB of disk and a few minutes)"
  .venv/bin/python3 -m pip install --disable-pip-version-check -r tools/requirements.txt
}

# .bazelrc can't name a user's home folder.
write_user_bazelrc() {
  [[ -e .bazelrc.user ]] && return
  local home
  home=${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}
  say "Bazel's disk cache: ${XDG_CACHE_HOME:-$home/.cache}/remat-bazel"
  echo "build --disk_cache=${XDG_CACHE_HOME:-$home/.cache}/remat-bazel" >.bazelrc.user
}

install_apt_packages
install_python_packages
write_user_bazelrc
if [[ -n "${LIBTORCH:-}" ]]; then
  say "C++ is built against LIBTORCH=$LIBTORCH"
fi
