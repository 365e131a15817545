#!/usr/bin/env bash
# Builds and starts the service in containers; ./deploy-gpu.sh --help says how. deploy/deploy_gpu.py does the work, with
# any Python from 3.9 on and nothing installed; deploy-gpu.ps1 starts the same from PowerShell. Runs on bash 3.2 (macOS).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

case $(uname -s) in
    Linux | Darwin) ;;
    *)
        printf '==> ERROR: %s\n    %s\n' 'this script does not run in a shell of Windows' \
            'Use deploy-gpu.ps1 in PowerShell, or this script inside WSL 2.' >&2
        exit 3
        ;;
esac

for python in python3 python; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' >/dev/null 2>&1; then
        exec "$python" deploy/deploy_gpu.py "$@"
    fi
done
printf '==> ERROR: %s\n    %s\n' 'Python 3.9 or newer is not installed' \
    'Install it (Debian, Ubuntu: sudo apt install python3; macOS: xcode-select --install).' >&2
exit 3
