#!/usr/bin/env bash
# Runs clang-tidy on the given C++ files, or on those changed since the branch left origin's, or else in the last
# commit. A file that includes LibTorch takes a minute: newest first, as many as start within ten minutes; the rest is
# named.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly seconds=600

for file in "$@"; do
  [[ -e "$file" ]] || {
    echo "tidy: $file: no such file" >&2
    exit 2
  }
done

changed_files() {
  local base
  base=$(git merge-base HEAD origin/main 2>/dev/null) || base=
  if [[ -z "$base" || "$base" == "$(git rev-parse HEAD)" ]]; then
    # The first commit has none before it: compare with the empty tree.
    base=$(git rev-parse -q --verify HEAD~1) || base=$(git hash-object -t tree /dev/null)
  fi
  {
    git diff --name-only --diff-filter=d "$base" -- '*.cpp' '*.h'
    git ls-files --others --exclude-standard -- '*.cpp' '*.h'
  } | sort -u
}

# A header is checked through its source file where it has one. Newest first.
sources_of() {
  local file
  while read -r file; do
    if [[ "$file" == *.h && -e "${file%.h}.cpp" ]]; then
      file=${file%.h}.cpp
    fi
    [[ -e "$file" ]] || continue
    echo "$(git log -1 --format=%ct -- "$file" | grep . || stat -c %Y "$file") $file"
  done | sort -u | sort -rn | cut -d' ' -f2-
}

mapfile -t files < <(
  if (($# > 0)); then
    printf '%s\n' "$@"
  else
    changed_files
  fi | sources_of
)
if ((${#files[@]} == 0)); then
  echo "tidy: no C++ file changed"
  exit 0
fi

torch=${LIBTORCH:-}
if [[ -z "$torch" ]]; then
  torch=$(.venv/bin/python3 -c \
    'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')
fi
flags=(
  -std=c++17 -x c++ -Wall -Wextra -I. -Ibazel-bin
  -isystem "$torch/include" -isystem "$torch/include/torch/csrc/api/include"
  -isystem /usr/include/llvm-14 -isystem /usr/include/llvm-c-14
)
for cuda in "${CUDA_HOME:-}" /usr/local/cuda; do
  if [[ -n "$cuda" && -d "$cuda/include" ]]; then
    flags+=(-isystem "$cuda/include")
    break
  fi
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# As installed, for programs that use Remat from outside: <remat/remat.h>.
mkdir -p "$work/include/remat"
ln -s "$PWD/ir" "$PWD/passes" "$PWD/runtime" "$PWD/tools/install/remat.h" "$work/include/remat/"
flags+=(-isystem "$work/include")
echo "tidy: ${#files[@]} files"

# check NUMBER FILE: leaves NUMBER.left, NUMBER.failed or NUMBER.clean in the work folder.
check() {
  local number=$1 file=$2
  if ((SECONDS >= seconds)); then
    echo "$file" >"$work/$number.left"
  elif clang-tidy --quiet "$file" -- "${flags[@]}" >"$work/$number.log" 2>"$work/$number.err"; then
    echo "tidy: $file: clean"
    echo "$file" >"$work/$number.clean"
  else
    echo "tidy: $file: NOT clean"
    cat "$work/$number.log"
    grep -E 'error' "$work/$number.err" || true
    echo "$file" >"$work/$number.failed"
  fi
}

number=0
for file in "${files[@]}"; do
  number=$((number + 1))
  while (($(jobs -rp | wc -l) >= $(nproc))); do
    wait -n || true
  done
  check "$number" "$file" &
done
wait

count() { find "$work" -name "*.$1" | wc -l; }
for left in "$work"/*.left; do
  [[ -e "$left" ]] && echo "tidy: left out, ten minutes are over: $(cat "$left")"
done
echo "tidy: $(count clean) clean, $(count failed) not clean, $(count left) left out"
(($(count failed) == 0))
