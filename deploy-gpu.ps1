#requires -Version 5.1
# Builds and starts the service in containers; .\deploy-gpu.ps1 -Help says how. deploy/deploy_gpu.py does the work, with
# any Python from 3.9 on and nothing installed; deploy-gpu.sh starts the same from bash.
# Where scripts are forbidden: powershell -ExecutionPolicy Bypass -File .\deploy-gpu.ps1
$ErrorActionPreference = 'Continue' # Windows PowerShell takes a line on standard error for an error
foreach ($name in @('py', 'python3', 'python')) {
    if (-not (Get-Command $name -CommandType Application -ErrorAction SilentlyContinue)) { continue }
    # The Microsoft Store's stand-in for a missing Python ends with an exit code of its own.
    & $name -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>&1 | Out-Null
    if ($LASTEXITCODE -ne 0) { continue }
    & $name (Join-Path $PSScriptRoot 'deploy/deploy_gpu.py') --powershell @args
    exit $LASTEXITCODE
}
[Console]::Error.WriteLine('==> ERROR: Python 3.9 or newer is not installed')
[Console]::Error.WriteLine('    Install it: winget install Python.Python.3.12')
exit 3
