#!/usr/bin/env bash
# Creates a virtual environment with a Python that pyproject.toml allows, and prints which one it took.
#   tools/create_venv.sh FOLDER [PYTHON]
set -euo pipefail

folder=$1
wish=${2:-}

fits() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' >/dev/null 2>&1; }

create() {
    rm -rf "$folder"
    "$1" -m venv "$folder" >/dev/null 2>&1 && "$folder/bin/python" -m pip --version >/dev/null 2>&1
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; elif sudo -n true 2>/dev/null; then sudo -n "$@"; else return 1; fi
}

fitting=()
for candidate in ${wish:-python3 python3.13 python3.12 python3.11}; do
    if command -v "$candidate" >/dev/null 2>&1 && fits "$candidate"; then fitting+=("$candidate"); fi
done
if [ ${#fitting[@]} = 0 ]; then
    echo "No Python 3.11, 3.12 or 3.13 found${wish:+ under the name $wish}. Install one, or name it: make serve PYTHON=/path/to/python3.12" >&2
    exit 1
fi

for python in "${fitting[@]}"; do
    if create "$python"; then echo "==> $folder with $("$python" --version)"; exit 0; fi
done

# Debian and Ubuntu ship ensurepip apart from Python.
version=$("${fitting[0]}" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
echo "==> ${fitting[0]} cannot make a virtual environment with pip; installing python$version-venv" >&2
if command -v apt-get >/dev/null 2>&1 && as_root apt-get install -y -q "python$version-venv" >&2 && create "${fitting[0]}"; then
    echo "==> $folder with $("${fitting[0]}" --version)"
    exit 0
fi
rm -rf "$folder"
echo "${fitting[0]} cannot make a virtual environment: install the package python$version-venv (Debian, Ubuntu) and try again." >&2
exit 1
