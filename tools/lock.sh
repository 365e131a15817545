#!/usr/bin/env bash
# Writes constraints.txt: the exact version of every package, transitive ones included, that the extras install today.
#   tools/lock.sh [TORCH_INDEX_URL [PYTHON]]
# Run it through `make lock` with Python 3.11, the oldest that pyproject.toml allows.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=$folder/venv/bin/python

tools/create_venv.sh "$folder/venv" "${2:-}"
read -r -a index <<< "$("$python" tools/torch_index.py "${1:-auto}")"
torch=$("$python" -c '
import tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
print(next(wish for wish in project["dependencies"] if wish.startswith("torch>")))')
"$python" -m pip install "${index[@]}" "$torch"
"$python" -m pip install --editable ".[test,lint,bench,ray]"

{
    echo "# Exact versions of everything that .[test,lint,bench,ray] installs. Made by \`make lock\`; do not edit."
    echo "# torch stands without its local version (+cpu, +cu130), so that the same pin holds with every index;"
    echo "# the nvidia-* packages of a CUDA build are pinned by torch itself."
    "$python" -m pip freeze --all --exclude pip --exclude financia-inference | sed -E 's/^(torch==[^+]+)\+.*/\1/' | LC_ALL=C sort -f
} > "$folder/constraints.txt"
cp "$folder/constraints.txt" constraints.txt
"$python" -m tools.lock_image  # what the images install, with checksums
