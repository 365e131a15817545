#requires -Version 5.1
# Builds and starts the service in containers: with the torch build that fits card and driver, or on the CPU.
# deploy-gpu.sh is the same for bash: same options, decisions, messages and exit codes; tests/deploy compares them.
# Runs on Windows PowerShell 5.1 and PowerShell 7: plain ASCII, no ternaries, no &&, no arguments with double quotes.
# Where scripts are forbidden: powershell -ExecutionPolicy Bypass -File .\deploy-gpu.ps1
[CmdletBinding(PositionalBinding = $false)]
param(
    [switch]$Cpu,
    [string]$Gpu = '',
    [string]$Port = '',
    [switch]$Monitoring,
    [string]$Wait = '900',
    [switch]$Check,
    [switch]$Logs,
    [switch]$Down,
    [switch]$DryRun,
    [switch]$Help,
    [Parameter(ValueFromRemainingArguments = $true)][string[]]$Rest = @()
)
Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'

$usage = @'
Usage: .\deploy-gpu.ps1 [options]

Checks Docker, driver and container toolkit, picks the torch build for the card, then builds, starts and waits until
the service answers. Without a usable GPU it says why and takes the CPU.

  -Cpu            serve from the CPU; no GPU is looked for
  -Gpu N          serve from this GPU, numbered as by nvidia-smi; an error if it cannot be used
  -Port N         port on this machine (default: PORT, or what the Compose file says)
  -Monitoring     start Prometheus and Grafana too
  -Wait S         seconds to wait until the service is ready (default 900: the first start may fetch models)
  -Check          run the check-up inside the running container; the exit code is the check-up's
  -Logs           follow the logs
  -Down           stop and remove the containers; volumes stay
  -DryRun         say what would be decided and run, and change nothing
  -Help           this text

Environment: USE_GPU=true makes a missing GPU an error, USE_GPU=false is -Cpu; TORCH_INDEX_URL names the index of
another torch build; CUDA_VISIBLE_DEVICES, PORT and all other settings of docs/settings.md reach the Compose file.

Exit codes: 0 done; 1 a command failed; 2 wrong options; 3 Docker or Compose is missing, too old or out of reach;
4 the GPU that was demanded cannot be used; 5 the service did not become ready.
'@

$INDEX_ROOT = 'https://download.pytorch.org/whl'
$CPU_FILE = 'docker-compose.yml'
$CPU_CONTAINER = 'financia_backend'
$GPU_FILE = 'docker-compose.gpu.yml'
$GPU_CONTAINER = 'financia_backend_gpu'
$CONTAINER_PORT = '8000'
$POLL_S = 2

function Write-Line([string]$Text) { Write-Host "==> $Text" }

function Write-Caution([string]$Text, [string]$Fix) {
    [Console]::Error.WriteLine("==> WARNING: $Text")
    if ($Fix) { [Console]::Error.WriteLine("    $Fix") }
}

function Stop-Deploy([int]$Code, [string]$Text, [string]$Fix) {
    [Console]::Error.WriteLine("==> ERROR: $Text")
    if ($Fix) { [Console]::Error.WriteLine("    $Fix") }
    exit $Code
}

# --------------------------------------------------------------------------------------------------------- wishes

function Get-Number([string]$Option, [string]$Value) {
    if ($Value -notmatch '^[0-9]+$') { Stop-Deploy 2 "$option needs a whole number, got '$value'" 'See: .\deploy-gpu.ps1 -Help' }
    return $Value
}

# What the command line and the environment ask for.
function Get-Wishes {
    foreach ($unknown in $Rest) { Stop-Deploy 2 "unknown option $unknown" 'See: .\deploy-gpu.ps1 -Help' }
    $wish = 'auto'
    if ($env:USE_GPU -match '^(true|1)$') { $wish = 'demand' }
    if ($env:USE_GPU -match '^(false|0)$') { $wish = 'cpu' }
    if ($Cpu) { $wish = 'cpu' }
    if ($bound.ContainsKey('Gpu')) {
        $gpu = Get-Number '-Gpu' $script:Gpu
        if ($wish -eq 'cpu') { Stop-Deploy 2 "-Gpu $gpu contradicts -Cpu or USE_GPU=false" 'Leave one of them out.' }
        $wish = 'demand'
    }
    $listen = "$env:PORT"
    if ($bound.ContainsKey('Port')) { $listen = Get-Number '-Port' $script:Port }
    return @{
        wish = $wish; gpu = $script:Gpu; port = $listen; wait_s = [int](Get-Number '-Wait' $script:Wait)
        index_wish = "$env:TORCH_INDEX_URL"
    }
}

# ---------------------------------------------------------------------------------------------------------- facts

# Runs a command, keeps what it says, and leaves its exit code in $script:status (127: there is no such command).
function Get-Answer([string[]]$Command) {
    $ErrorActionPreference = 'Continue' # Windows PowerShell takes a line on standard error for an error
    $program = $Command[0]
    $arguments = @($Command | Select-Object -Skip 1)
    $script:status = 127
    if (-not (Get-Command $program -CommandType Application -ErrorAction SilentlyContinue)) { return }
    & $program @arguments 2>&1 | ForEach-Object { "$_" }
    $script:status = $LASTEXITCODE
}

# linux, wsl1, wsl2, macos or windows.
function Get-System {
    if ($PSVersionTable.PSVersion.Major -lt 6) { return 'windows' }
    if ($IsWindows) { return 'windows' }
    if ($IsMacOS) { return 'macos' }
    $release = "$(uname -r)"
    if ($release -match 'microsoft.*WSL2|microsoft-standard') { return 'wsl2' }
    if ($release -cmatch 'Microsoft') { return 'wsl1' }
    return 'linux'
}

# Adds machine, kernel, engine_name, runtimes and Compose to the facts; ends the script when Docker cannot be used.
function Read-Docker($facts) {
    $said = @(Get-Answer @('docker', 'version', '--format', '{{.Server.Version}}'))
    if ($script:status -eq 127) { Stop-Deploy 3 'Docker is not installed: there is no command docker' (Get-DockerFix $facts.system) }
    # Asks the daemon in every version; "docker info" may end well without one.
    if ($script:status -ne 0) {
        $found = Get-DaemonFault $facts.system $said
        Stop-Deploy 3 $found.fault $found.fix
    }
    $said = @(Get-Answer @('docker', 'info', '--format', '{{.OSType}}|{{.Architecture}}|{{.KernelVersion}}|{{.OperatingSystem}}|{{range $name, $_ := .Runtimes}}{{$name}} {{end}}'))
    if ($script:status -ne 0) {
        $said = $said[0]
        Stop-Deploy 3 "docker info fails: $said" "Docker's own daemon is needed; a stand-in for it may lack this."
    }
    $parts = @($said -match '\|')[-1] -split '\|'
    if ($parts[0] -eq 'windows') {
        Stop-Deploy 3 'Docker runs Windows containers; the images are Linux ones' 'Switch over: right-click the Docker icon, "Switch to Linux containers".'
    }
    $facts.machine = $parts[1] -replace '^arm64$', 'aarch64' -replace '^amd64$', 'x86_64'
    $facts.kernel = $parts[2]
    $facts.engine_name = $parts[3]
    $facts.runtimes = @($parts[4].Trim() -split ' +')
    Read-Compose $facts
}

function Get-DockerFix($system) {
    if ($system -eq 'linux') { return 'Install Docker Engine with the Compose plugin: https://docs.docker.com/engine/install' }
    return 'Install Docker Desktop: https://docs.docker.com/desktop'
}

# Why the daemon did not answer.
function Get-DaemonFault($system, $lines) {
    if (($lines -join ' ') -match 'permission denied') {
        return @{
            fault = 'the Docker daemon is there, but you may not use it'
            fix = 'Run: sudo usermod -aG docker $USER, then log in again.'
        }
    }
    $said = $lines[0]
    $fault = "the Docker daemon cannot be reached: $said"
    if ($system -eq 'linux') {
        $fix = 'Start it: sudo systemctl start docker'
    } elseif ($system -eq 'macos' -or $system -eq 'windows') {
        $fix = 'Start Docker Desktop and wait until it says that it runs.'
    } else {
        $fix = 'Start Docker Desktop and turn on Settings > Resources > WSL integration for this distribution; or, with Docker installed in WSL: sudo service docker start'
    }
    return @{ fault = $fault; fix = $fix }
}

# Adds compose, the command, and compose_version; v2 (a plugin) goes before v1 (a program).
function Read-Compose($facts) {
    $facts.compose = @('docker', 'compose')
    $version = @(Get-Answer @('docker', 'compose', 'version', '--short'))
    if ($script:status -ne 0) {
        $facts.compose = @('docker-compose')
        $version = @(Get-Answer @('docker-compose', 'version', '--short'))
    }
    if ($script:status -ne 0) {
        Stop-Deploy 3 'Docker Compose is not installed' 'Install the plugin (Debian, Ubuntu: sudo apt install docker-compose-plugin), or Docker Desktop, which brings it.'
    }
    $compose_version = $version[-1] -replace '^v', ''
    $facts.compose_version = $compose_version
    $numbers = $compose_version -split '\.'
    if ($numbers[0] -eq '1') {
        if ([int]$numbers[1] -lt 28) {
            Stop-Deploy 3 "Docker Compose $compose_version is too old: profiles and GPU reservations came with 1.28" 'Install the plugin (Debian, Ubuntu: sudo apt install docker-compose-plugin).'
        }
        Write-Caution "Docker Compose $compose_version is no longer maintained" 'It will do; the plugin (docker compose) replaces it.'
    }
}

# Adds smi (absent, failed or listed), smi_says, driver, and cards: index, uuid, name, capability.
function Read-Cards($facts) {
    $program = 'nvidia-smi'
    $said = @(Get-Answer @($program, '--query-gpu=driver_version', '--format=csv,noheader'))
    if ($script:status -eq 127) {
        $program = '/usr/lib/wsl/lib/nvidia-smi' # where Windows puts it; not in the PATH of every shell
        $said = @(Get-Answer @($program, '--query-gpu=driver_version', '--format=csv,noheader'))
        if ($script:status -eq 127) { return }
    }
    $facts.smi = 'failed'
    $facts.smi_says = "$(@($said + '')[0])"
    if ($facts.smi_says -notmatch '^[0-9]+\.[0-9]') { return }
    $facts.smi = 'listed'
    $facts.driver = $facts.smi_says
    # Drivers before the 510 branch do not know compute_cap; they are too old for every build anyway.
    $lines = @(Get-Answer @($program, '--query-gpu=index,uuid,name,compute_cap', '--format=csv,noheader'))
    if ($script:status -ne 0) {
        $lines = @(Get-Answer @($program, '--query-gpu=index,uuid,name', '--format=csv,noheader') | ForEach-Object { "$_, unknown" })
    }
    $facts.cards = @(Get-Cards $lines)
}

function Get-Cards($lines) {
    $cards = @()
    foreach ($line in $lines) {
        $parts = $line -split ', *'
        $cards += @{ index = $parts[0]; uuid = $parts[1]; name = $parts[2]; capability = $parts[3] }
    }
    return $cards
}

# ------------------------------------------------------------------------------------------------------ decisions

# From wishes and facts to mode (cpu or gpu), build, index, visible, why and left_out; obstacle and fix where a GPU is
# wanted and cannot be used. Pure: tests/deploy runs this function and those it calls without PowerShell.
function Get-Decision($wishes, $facts, $lines) {
    $decision = @{ mode = 'cpu'; build = ''; index = "$INDEX_ROOT/cpu"; visible = ''; why = ''; left_out = ''; obstacle = ''; fix = '' }
    if ($wishes.index_wish) { $decision.index = $wishes.index_wish }
    if ($wishes.wish -eq 'cpu') {
        $decision.why = 'CPU, as asked for'
        return $decision
    }
    Find-Obstacle $decision $facts
    if (-not $decision.obstacle) { Select-Cards $decision $facts.cards $wishes.gpu }
    if (-not $decision.obstacle) { Select-Build $decision $wishes.index_wish $facts $lines }
    if ($decision.obstacle) {
        $obstacle = $decision.obstacle
        $decision.why = "CPU: $obstacle"
        return $decision
    }
    $decision.mode = 'gpu'
    return $decision
}

# What stands between a container and any GPU of this machine.
function Find-Obstacle($decision, $facts) {
    $smi_says = $facts.smi_says
    if ($facts.system -eq 'macos') {
        $decision.obstacle = 'containers on a Mac have no access to its GPU'
        $decision.fix = 'To use it, run outside Docker: make serve'
    } elseif ($facts.system -eq 'wsl1') {
        $decision.obstacle = 'this is WSL 1, which has no access to the GPU'
        $decision.fix = 'In Windows: wsl --set-version <distribution> 2'
    } elseif ($facts.smi -eq 'absent') {
        $decision.obstacle = 'no NVIDIA driver is installed: there is no command nvidia-smi'
        $decision.fix = Get-DriverFix $facts.system
    } elseif ($facts.smi -eq 'failed') {
        $decision.obstacle = "the NVIDIA driver does not answer: $smi_says"
        $decision.fix = 'Driver and library of different versions: restart the machine. Otherwise install the driver anew.'
    } else {
        Find-ContainerObstacle $decision $facts
    }
}

# The driver is well: what stands between it and a container.
function Find-ContainerObstacle($decision, $facts) {
    if ($facts.engine_name -match 'Docker Desktop') {
        # Docker Desktop on its WSL 2 engine brings the toolkit along
        if ($facts.kernel -notmatch 'microsoft') {
            $decision.obstacle = 'Docker Desktop hands no GPU to containers without its WSL 2 engine'
            $decision.fix = 'Windows: Settings > General > Use the WSL 2 based engine. Linux: use Docker Engine instead of Docker Desktop.'
        }
    } elseif ($facts.runtimes -notcontains 'nvidia') {
        $decision.obstacle = 'the NVIDIA Container Toolkit is not installed, or Docker does not know it'
        $decision.fix = 'Install nvidia-container-toolkit, then: sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker'
    }
}

function Get-DriverFix($system) {
    if ($system -eq 'linux') { return 'With an NVIDIA card: install the driver of your distribution (Ubuntu: sudo ubuntu-drivers install) and restart.' }
    return 'With an NVIDIA card: install its driver in Windows, never inside WSL, then: wsl --shutdown'
}

# Adds chosen, the cards that count: that of -Gpu N, or all.
function Select-Cards($decision, $cards, $gpu) {
    $decision.chosen = @()
    $numbers = @()
    foreach ($card in $cards) {
        $numbers += $card.index
        if ($gpu -eq '' -or $gpu -eq $card.index) {
            $decision.chosen += $card
            if ($gpu -ne '') { $decision.visible = $card.uuid }
        }
    }
    if ($decision.chosen.Count -eq 0) {
        $found = $numbers -join ', '
        $decision.obstacle = "there is no GPU $gpu"
        $decision.fix = "The driver lists: $found"
    }
}

# Sets build, index, why and left_out. The build that runs most of the cards is best; among equals the newest whose
# CUDA the driver knows; where it knows none, the oldest it can start (minor-version compatibility).
function Select-Build($decision, $index_wish, $facts, $lines) {
    if ($index_wish) {
        $decision.build = @($index_wish -split '/')[-1]
        $decision.why = "GPU, torch from $index_wish, as TORCH_INDEX_URL says"
        return
    }
    $major = [int]@($facts.driver -split '\.')[0]
    $first = 0
    $needed = 0
    $known = @()
    $later = @()
    foreach ($row in (Get-Rows $lines $facts.machine)) {
        if ($first -eq 0 -or $row.oldest -lt $first) { $first = $row.oldest }
        if ((Measure-Covered $row $decision.chosen) -gt 0 -and ($needed -eq 0 -or $row.oldest -lt $needed)) { $needed = $row.oldest }
        if ($major -ge $row.own) {
            $known = @($row) + $known
        } elseif ($major -ge $row.oldest) {
            $later += $row
        }
    }
    $best = 0
    $chosen_row = $null
    foreach ($row in ($known + $later)) {
        $count = Measure-Covered $row $decision.chosen
        if ($count -gt $best) {
            $best = $count
            $chosen_row = $row
        }
    }
    $shown = Join-Capabilities $decision.chosen
    if ($best -eq 0) {
        Set-NoBuild $decision $facts $major $first $needed $shown
        return
    }
    $decision.build = $chosen_row.build
    $decision.index = $INDEX_ROOT + '/' + $chosen_row.build
    $decision.why = Get-WhyBuild $chosen_row $known $facts.driver $shown
    $decision.left_out = Get-LeftOut $chosen_row $decision.chosen
}

# The rows of deploy/torch-builds.tsv for this machine.
function Get-Rows($lines, $machine) {
    $rows = @()
    foreach ($line in $lines) {
        $parts = $line -split '\t'
        if ($line -notmatch '^#' -and $parts[1] -eq $machine) {
            $rows += @{ build = $parts[0]; oldest = [int]$parts[2]; own = [int]$parts[3]; capabilities = $parts[4] -split ',' }
        }
    }
    return $rows
}

# How many of the cards the build has kernels for.
function Measure-Covered($row, $cards) {
    $count = 0
    foreach ($card in $cards) {
        if ($row.capabilities -contains $card.capability) { $count += 1 }
    }
    return $count
}

function Join-Capabilities($cards) {
    $shown = @()
    foreach ($card in $cards) {
        if ($shown -notcontains $card.capability) { $shown += $card.capability }
    }
    return $shown -join ', '
}

# first and needed: the first driver branch that starts any build for this machine, or one with kernels for the cards;
# 0 where there is no such build.
function Set-NoBuild($decision, $facts, $major, $first, $needed, $shown) {
    $driver = $facts.driver
    $machine = $facts.machine
    if ($major -lt $first) {
        $decision.obstacle = "driver $driver is too old: no torch build starts before driver $first"
        if ($needed -eq 0) { $needed = $first }
        $decision.fix = "Update the NVIDIA driver to $needed or newer (under WSL in Windows)."
    } elseif ($needed -gt 0) {
        $decision.obstacle = "driver $driver is too old: the oldest torch build for compute capability $shown needs driver $needed"
        $decision.fix = "Update the NVIDIA driver to $needed or newer (under WSL in Windows)."
    } else {
        $decision.obstacle = "no published torch build for $machine has kernels for compute capability $shown"
        $decision.fix = 'If you know one, set TORCH_INDEX_URL to its index.'
    }
}

# known: the builds whose CUDA the driver knows, newest first; those before the chosen one were passed over.
function Get-WhyBuild($row, $known, $driver, $shown) {
    $build = $row.build
    $passed = @()
    $is_known = $false
    foreach ($one in $known) {
        if ($one.build -eq $build) { $is_known = $true }
        if (-not $is_known) { $passed += $one.build }
    }
    if ($is_known) {
        $why = "GPU, torch build ${build}: the newest that driver $driver knows with kernels for compute capability $shown"
    } else {
        $why = "GPU, torch build ${build}: the oldest that driver $driver starts with kernels for compute capability $shown"
    }
    if ($passed.Count -gt 0) {
        $passed = $passed -join ', '
        $why = "$why (kernels missing in $passed)"
    }
    return $why
}

# The cards that a build has no kernels for.
function Get-LeftOut($row, $cards) {
    $left_out = @()
    foreach ($card in $cards) {
        $number = $card.index
        $name = $card.name
        $capability = $card.capability
        if ($row.capabilities -notcontains $capability) { $left_out += "GPU $number ($name, compute capability $capability)" }
    }
    return $left_out -join ', '
}

function Write-Facts($wishes, $facts) {
    $system = $facts.system
    $engine_name = $facts.engine_name
    $machine = $facts.machine
    $compose_version = $facts.compose_version
    $driver = $facts.driver
    Write-Line "$system, Docker on $engine_name ($machine), Compose $compose_version"
    if ($wishes.wish -eq 'cpu') { return }
    if ($facts.smi -eq 'listed') { Write-Line "NVIDIA driver $driver" }
    foreach ($card in $facts.cards) {
        $number = $card.index
        $name = $card.name
        $capability = $card.capability
        Write-Line "GPU ${number}: $name, compute capability $capability"
    }
}

function Write-Decision($wishes, $decision) {
    $obstacle = $decision.obstacle
    $left_out = $decision.left_out
    $CUDA_VISIBLE_DEVICES = $env:CUDA_VISIBLE_DEVICES
    if ($obstacle) {
        if ($wishes.wish -eq 'demand') { Stop-Deploy 4 "the GPU cannot be used: $obstacle" $decision.fix }
        Write-Caution "serving from the CPU: $obstacle" $decision.fix
    } else {
        Write-Line $decision.why
    }
    if ($left_out) { Write-Caution "this build has no kernels for $left_out" 'To serve from such a card alone: -Gpu N' }
    if ($CUDA_VISIBLE_DEVICES -and -not $wishes.gpu -and $decision.mode -eq 'gpu') {
        Write-Line "CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES, as the environment says"
    }
}

# -------------------------------------------------------------------------------------------------------- actions

# The one way to anything that changes something. Leaves the exit code in $script:status.
function Invoke-Run([string[]]$Command) {
    $ErrorActionPreference = 'Continue'
    $program = $Command[0]
    $arguments = @($Command | Select-Object -Skip 1)
    Write-Host "+ $($Command -join ' ')"
    $script:status = 0
    if ($DryRun) { return }
    & $program @arguments | Out-Host
    $script:status = $LASTEXITCODE
}

# A variable for the Compose file; given back when the script ends, as it runs inside the caller's session.
function Set-Given([string]$Name, [string]$Value) {
    Write-Host "  $Name=$Value"
    if (-not $given.ContainsKey($Name)) { $given[$Name] = [Environment]::GetEnvironmentVariable($Name) }
    [Environment]::SetEnvironmentVariable($Name, $Value)
}

function Test-Container([string]$Name) {
    $null = Get-Answer @('docker', 'container', 'inspect', $Name)
    return $script:status -eq 0
}

# The service that is there, the GPU's first.
function Find-Service {
    if (Test-Container $GPU_CONTAINER) { return $GPU_CONTAINER }
    if (Test-Container $CPU_CONTAINER) { return $CPU_CONTAINER }
    Stop-Deploy 1 'the service is not there' 'Start it: .\deploy-gpu.ps1'
}

function Stop-All($facts) {
    foreach ($file in $GPU_FILE, $CPU_FILE) {
        Invoke-Run ($facts.compose + @('-f', $file, '--profile', 'monitoring', 'down'))
        if ($script:status -ne 0) { Stop-Deploy 1 'the containers could not be stopped' 'The last lines above say why.' }
    }
}

function Show-Logs {
    Invoke-Run @('docker', 'logs', '--follow', '--tail', '200', (Find-Service))
    exit $script:status
}

function Start-Check {
    Invoke-Run @('docker', 'exec', (Find-Service), 'python', '-m', 'backend.check_gpu')
    exit $script:status
}

function Start-Deploy($wishes, $facts) {
    if ($wishes.wish -ne 'cpu') { Read-Cards $facts }
    $decision = Get-Decision $wishes $facts (Get-Content 'deploy/torch-builds.tsv')
    Write-Facts $wishes $facts
    Write-Decision $wishes $decision
    $file = $CPU_FILE; $container = $CPU_CONTAINER; $other_file = $GPU_FILE; $other = $GPU_CONTAINER
    if ($decision.mode -eq 'gpu') { $file = $GPU_FILE; $container = $GPU_CONTAINER; $other_file = $CPU_FILE; $other = $CPU_CONTAINER }
    $profiles = @()
    if ($Monitoring) { $profiles = @('--profile', 'monitoring') }
    # Both listen on the same port.
    if (Test-Container $other) {
        Invoke-Run ($facts.compose + @('-f', $other_file, '--profile', 'monitoring', 'down'))
        if ($script:status -ne 0) { Stop-Deploy 1 "the other service ($other) could not be stopped" '' }
    }
    Set-Given 'TORCH_INDEX_URL' $decision.index
    if ($decision.mode -eq 'gpu') { Set-Given 'USE_GPU' 'true' } else { Set-Given 'USE_GPU' 'false' }
    if ($decision.visible) { Set-Given 'CUDA_VISIBLE_DEVICES' $decision.visible }
    if ($wishes.port) { Set-Given 'PORT' $wishes.port }
    if ($facts.compose[0] -eq 'docker-compose') { Set-Given 'COMPOSE_DOCKER_CLI_BUILD' '1'; Set-Given 'DOCKER_BUILDKIT' '1' }
    Invoke-Run ($facts.compose + @('-f', $file, 'build'))
    if ($script:status -ne 0) { Stop-Deploy 1 'the image could not be built' 'The last lines above say why. If a download failed, run this again: what is done is kept.' }
    Invoke-Run ($facts.compose + @('-f', $file) + $profiles + @('up', '--detach'))
    if ($script:status -ne 0) {
        Stop-Deploy 1 'the containers could not be started' 'The last lines above say why. Port taken: -Port N. No GPU in containers (could not select device driver): -Cpu, or the toolkit of docs/gpu.md#container.'
    }
    if ($DryRun) { return }
    $url = Get-Url $container $wishes.port
    Wait-Ready $container $url $wishes.wait_s
    Write-Result $container $url ($facts.compose + @('-f', $file) + $profiles + @('ps'))
}

# Where the container's port is on this machine.
function Get-Url([string]$container, [string]$port) {
    $lines = @(Get-Answer @('docker', 'port', $container, "$CONTAINER_PORT/tcp"))
    if (-not $port) { $port = $CONTAINER_PORT }
    if ($script:status -eq 0 -and $lines.Count -gt 0) { $port = @($lines[0] -split ':')[-1] }
    return "http://127.0.0.1:$port"
}

function Wait-Ready([string]$container, [string]$url, [int]$wait_s) {
    $clock = [Diagnostics.Stopwatch]::StartNew()
    $restarts = 0
    $said = @(Get-Answer @('docker', 'inspect', '--format', '{{.RestartCount}}', $container))
    if ($script:status -eq 0) { $restarts = [int]$said[-1] }
    $told = ''
    Write-Line "waiting until $url/health/ready says 200 (at most $wait_s s)"
    while ($true) {
        $answer = @(Get-Answer @($curl, '--silent', '--max-time', '10', '--write-out', '\n%{http_code}', "$url/health/ready"))
        if ($answer[-1] -eq '200') { return }
        $state = @(Get-Answer @('docker', 'inspect', '--format', '{{.State.Status}} {{.RestartCount}} {{.State.ExitCode}} {{.State.OOMKilled}}', $container))
        if ($script:status -ne 0) { $state = @('gone 0 0 false') }
        Assert-Running $container $restarts $state[-1]
        $reason = 'starting: loading models, and on the first start measuring'
        if (($answer -join '') -match '"detail":"([^"]*)"') { $reason = $Matches[1] }
        $elapsed = [int]$clock.Elapsed.TotalSeconds
        if ($reason -ne $told) { Write-Host ('    {0,4} s  {1}' -f $elapsed, $reason) }
        $told = $reason
        if ($elapsed -ge $wait_s) {
            Show-LastLogs $container
            Stop-Deploy 5 "not ready after $wait_s s: $reason" 'It may still get there: -Logs follows it, -Wait S waits longer.'
        }
        Start-Sleep -Seconds $POLL_S
    }
}

# Ends the script when the process has ended since; state is "status restarts exit-code out-of-memory".
function Assert-Running([string]$container, [int]$before, [string]$state) {
    $status, $restarts, $code, $oom = $state -split ' '
    if (@('exited', 'dead', 'gone', 'restarting') -notcontains $status -and [int]$restarts -le $before) { return }
    Show-LastLogs $container
    if ($oom -eq 'true' -or $code -eq '137') {
        Stop-Deploy 5 'the container was killed, most likely for want of memory' 'Raise its memory limit in the Compose file.'
    }
    if ($code -eq '2') { Stop-Deploy 5 'the service refused to start (exit code 2): a setting, the device or a model is wrong' 'The log above says which; docs/settings.md has every setting.' }
    if ($code -eq '3') { Stop-Deploy 5 'the device was lost (exit code 3)' 'See docs/gpu.md#gpu-lost.' }
    Stop-Deploy 5 "the container ended (exit code $code)" 'The log above says why.'
}

function Show-LastLogs([string]$container) {
    Write-Line "the last lines of docker logs $container"
    Get-Answer @('docker', 'logs', '--tail', '60', $container) | Out-Host
}

function Write-Result([string]$container, [string]$url, [string[]]$list) {
    Write-Line "ready: $url"
    $said = @(Get-Answer @($curl, '--silent', '--max-time', '10', "$url/health"))
    try {
        $health = ($said -join '') | ConvertFrom-Json
        Write-Host "    device    $($health.device.device): $($health.device.reason)"
        foreach ($model in $health.models) { Write-Host "    model     $($model.name) ($($model.task)): $($model.runtime) $($model.dtype)" }
    } catch {
        Write-Caution 'the report of /health could not be read' "See $url/health"
    }
    Get-Answer $list | Out-Host
    Write-Line 'a first request:'
    Write-Host "    Invoke-RestMethod -Method Post -Uri $url/v1/embeddings -ContentType application/json -Body '{`"input`": `"The invoice is due on Friday.`"}'"
    Write-Line 'then: -Check, -Logs, -Down'
}

if ($Help) { Write-Host $usage; exit 0 }
$bound = $PSBoundParameters # inside a function this is the function's own
$given = @{}
$status = 0
$curl = 'curl'
Push-Location $PSScriptRoot
try {
    $wishes = Get-Wishes
    $facts = @{ system = (Get-System); smi = 'absent'; smi_says = ''; driver = ''; cards = @() }
    if ($facts.system -eq 'windows') { $curl = 'curl.exe' } # "curl" is another command there
    Read-Docker $facts
    if ($Check) {
        Start-Check
    } elseif ($Logs) {
        Show-Logs
    } elseif ($Down) {
        Stop-All $facts
    } else {
        if (-not (Get-Command $curl -CommandType Application -ErrorAction SilentlyContinue)) { Stop-Deploy 3 'curl is not installed' 'Install it (Debian, Ubuntu: sudo apt install curl).' }
        Start-Deploy $wishes $facts
    }
} finally {
    foreach ($name in $given.Keys) {
        if ($null -eq $given[$name]) { Remove-Item "Env:$name" } else { [Environment]::SetEnvironmentVariable($name, $given[$name]) }
    }
    Pop-Location
}
exit 0
