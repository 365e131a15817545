#!/usr/bin/env bash
# Builds and starts the service in containers: with the torch build that fits card and driver, or on the CPU.
# deploy-gpu.ps1 is the same for PowerShell: same options, decisions, messages and exit codes; tests/deploy compares them.
# Runs on the bash 3.2 of macOS: no associative arrays, no ${name,,}.
set -euo pipefail

usage() {
    cat <<'TEXT'
Usage: ./deploy-gpu.sh [options]

Checks Docker, driver and container toolkit, picks the torch build for the card, then builds, starts and waits until
the service answers. Without a usable GPU it says why and takes the CPU.

  --cpu           serve from the CPU; no GPU is looked for
  --gpu N         serve from this GPU, numbered as by nvidia-smi; an error if it cannot be used
  --port N        port on this machine (default: PORT, or what the Compose file says)
  --monitoring    start Prometheus and Grafana too
  --wait S        seconds to wait until the service is ready (default 900: the first start may fetch models)
  --check         run the check-up inside the running container; the exit code is the check-up's
  --logs          follow the logs
  --down          stop and remove the containers; volumes stay
  --dry-run       say what would be decided and run, and change nothing
  --help          this text

Environment: USE_GPU=true makes a missing GPU an error, USE_GPU=false is --cpu; TORCH_INDEX_URL names the index of
another torch build; CUDA_VISIBLE_DEVICES, PORT and all other settings of docs/settings.md reach the Compose file.

Exit codes: 0 done; 1 a command failed; 2 wrong options; 3 Docker or Compose is missing, too old or out of reach;
4 the GPU that was demanded cannot be used; 5 the service did not become ready.
TEXT
}

readonly INDEX=https://download.pytorch.org/whl
readonly CPU_FILE=docker-compose.yml CPU_CONTAINER=financia_backend
readonly GPU_FILE=docker-compose.gpu.yml GPU_CONTAINER=financia_backend_gpu
readonly CONTAINER_PORT=8000
readonly POLL_S=2

say() { printf '==> %s\n' "$1"; }

warn() {
    printf '==> WARNING: %s\n' "$1" >&2
    [ -z "$2" ] || printf '    %s\n' "$2" >&2
}

# fail EXIT_CODE FAULT FIX
fail() {
    printf '==> ERROR: %s\n' "$2" >&2
    [ -z "$3" ] || printf '    %s\n' "$3" >&2
    exit "$1"
}

# ---------------------------------------------------------------------------------------------------------- wishes

parse() {
    action=deploy wish=auto gpu='' port=${PORT:-} monitoring=no dry_run=no wait_s=900
    index_wish=${TORCH_INDEX_URL:-}
    case ${USE_GPU:-} in
        [Tt]rue | TRUE | 1) wish=demand ;;
        [Ff]alse | FALSE | 0) wish=cpu ;;
    esac
    while [ $# -gt 0 ]; do
        case $1 in
            --cpu) wish=cpu ;;
            --gpu) gpu=$(number "$@"); shift ;;
            --port) port=$(number "$@"); shift ;;
            --wait) wait_s=$(number "$@"); shift ;;
            --monitoring) monitoring=yes ;;
            --check) action=check ;;
            --logs) action=logs ;;
            --down) action=down ;;
            --dry-run) dry_run=yes ;;
            --help | -h) usage; exit 0 ;;
            *) unknown=$1; fail 2 "unknown option $unknown" 'See: ./deploy-gpu.sh --help' ;;
        esac
        shift
    done
    if [ -n "$gpu" ]; then
        [ "$wish" != cpu ] || fail 2 "--gpu $gpu contradicts --cpu or USE_GPU=false" 'Leave one of them out.'
        wish=demand
    fi
}

# number OPTION VALUE...: the value if it is a whole number.
number() {
    local option=$1 value=${2:-}
    case $value in
        '' | *[!0-9]*) fail 2 "$option needs a whole number, got '$value'" 'See: ./deploy-gpu.sh --help' ;;
    esac
    printf '%s' "$value"
}

# ----------------------------------------------------------------------------------------------------------- facts

# system: linux, wsl1, wsl2, macos or windows.
read_system() {
    case $(uname -s) in
        Linux) system=linux ;;
        Darwin) system=macos ;;
        *) system=windows ;;
    esac
    case $(uname -r) in
        *[Mm]icrosoft*WSL2*) system=wsl2 ;;
        *[Mm]icrosoft-standard*) system=wsl2 ;;
        *Microsoft*) system=wsl1 ;;
    esac
}

# Sets engine (linux or windows), machine, kernel, engine_name and runtimes; ends the script when Docker cannot be used.
read_docker() {
    local said
    command -v docker >/dev/null 2>&1 || fail 3 'Docker is not installed: there is no command docker' "$(docker_fix)"
    # Asks the daemon in every version; "docker info" may end well without one.
    if ! said=$(docker version --format '{{.Server.Version}}' 2>&1); then
        daemon_fault "$said"
        fail 3 "$fault" "$fix"
    fi
    # shellcheck disable=SC2016  # $name is Docker's, not ours
    said=$(docker info --format '{{.OSType}}|{{.Architecture}}|{{.KernelVersion}}|{{.OperatingSystem}}|{{range $name, $_ := .Runtimes}}{{$name}} {{end}}' 2>&1) ||
        { said=$(printf '%s\n' "$said" | head -n 1); fail 3 "docker info fails: $said" "Docker's own daemon is needed; a stand-in for it may lack this."; }
    IFS='|' read -r engine machine kernel engine_name runtimes <<<"$(printf '%s\n' "$said" | grep -F '|' | tail -n 1)"
    case $machine in
        arm64) machine=aarch64 ;;
        amd64) machine=x86_64 ;;
    esac
    [ "$engine" != windows ] || fail 3 'Docker runs Windows containers; the images are Linux ones' \
        'Switch over: right-click the Docker icon, "Switch to Linux containers".'
    read_compose
}

docker_fix() {
    case $system in
        linux) echo 'Install Docker Engine with the Compose plugin: https://docs.docker.com/engine/install' ;;
        *) echo 'Install Docker Desktop: https://docs.docker.com/desktop' ;;
    esac
}

# daemon_fault OUTPUT: why the daemon did not answer. Sets fault and fix.
daemon_fault() {
    local said
    said=$(printf '%s\n' "$1" | head -n 1)
    case $1 in
        *"permission denied"*)
            fault='the Docker daemon is there, but you may not use it'
            # shellcheck disable=SC2016  # printed for the reader's shell
            fix='Run: sudo usermod -aG docker $USER, then log in again.'
            ;;
        *)
            fault="the Docker daemon cannot be reached: $said"
            case $system in
                linux) fix='Start it: sudo systemctl start docker' ;;
                macos | windows) fix='Start Docker Desktop and wait until it says that it runs.' ;;
                *) fix='Start Docker Desktop and turn on Settings > Resources > WSL integration for this distribution; or, with Docker installed in WSL: sudo service docker start' ;;
            esac
            ;;
    esac
}

# Sets compose, the command, and compose_version; v2 (a plugin) goes before v1 (a program).
read_compose() {
    local major minor
    if compose_version=$(docker compose version --short 2>/dev/null); then
        compose=(docker compose)
    elif compose_version=$(docker-compose version --short 2>/dev/null); then
        compose=(docker-compose)
    else
        fail 3 'Docker Compose is not installed' 'Install the plugin (Debian, Ubuntu: sudo apt install docker-compose-plugin), or Docker Desktop, which brings it.'
    fi
    compose_version=${compose_version#v}
    IFS=. read -r major minor _ <<<"$compose_version"
    if [ "$major" = 1 ]; then
        [ "$minor" -ge 28 ] || fail 3 "Docker Compose $compose_version is too old: profiles and GPU reservations came with 1.28" \
            'Install the plugin (Debian, Ubuntu: sudo apt install docker-compose-plugin).'
        warn "Docker Compose $compose_version is no longer maintained" 'It will do; the plugin (docker compose) replaces it.'
    fi
}

# Sets smi (absent, failed or listed), smi_says, driver, and cards: lines "index|uuid|name|capability".
read_cards() {
    local program=nvidia-smi line index uuid name capability
    smi=absent smi_says='' driver='' cards=''
    if ! command -v $program >/dev/null 2>&1; then
        program=/usr/lib/wsl/lib/nvidia-smi # where Windows puts it; not in the PATH of every shell
        [ -x $program ] || return 0
    fi
    smi=failed
    smi_says=$($program --query-gpu=driver_version --format=csv,noheader 2>&1) || true
    smi_says=$(printf '%s\n' "$smi_says" | head -n 1)
    case $smi_says in
        [0-9]*.[0-9]*) driver=$smi_says smi=listed ;;
        *) return 0 ;;
    esac
    # Drivers before the 510 branch do not know compute_cap; they are too old for every build anyway.
    line=$($program --query-gpu=index,uuid,name,compute_cap --format=csv,noheader 2>/dev/null) ||
        line=$($program --query-gpu=index,uuid,name --format=csv,noheader | sed 's/$/, unknown/')
    while IFS=, read -r index uuid name capability; do
        cards="$cards$index|${uuid# }|${name# }|${capability# }"$'\n'
    done <<<"$line"
}

# ------------------------------------------------------------------------------------------------------- decisions

# From wishes and facts to mode (cpu or gpu), build, index, visible, why and left_out; obstacle and fix where a GPU is
# wanted and cannot be used. Reads deploy/torch-builds.tsv and nothing else.
decide() {
    mode=cpu build='' visible='' why='' left_out='' obstacle='' fix=''
    index=${index_wish:-$INDEX/cpu}
    if [ "$wish" = cpu ]; then
        why='CPU, as asked for'
        return
    fi
    find_obstacle
    [ -n "$obstacle" ] || pick_cards
    [ -n "$obstacle" ] || pick_build
    if [ -n "$obstacle" ]; then
        why="CPU: $obstacle"
        return
    fi
    mode=gpu
}

# What stands between a container and any GPU of this machine.
find_obstacle() {
    if [ "$system" = macos ]; then
        obstacle='containers on a Mac have no access to its GPU'
        fix='To use it, run outside Docker: make serve'
    elif [ "$system" = wsl1 ]; then
        obstacle='this is WSL 1, which has no access to the GPU'
        fix='In Windows: wsl --set-version <distribution> 2'
    elif [ "$smi" = absent ]; then
        obstacle='no NVIDIA driver is installed: there is no command nvidia-smi'
        driver_fix
    elif [ "$smi" = failed ]; then
        obstacle="the NVIDIA driver does not answer: $smi_says"
        fix='Driver and library of different versions: restart the machine. Otherwise install the driver anew.'
    else
        find_container_obstacle
    fi
}

# The driver is well: what stands between it and a container.
find_container_obstacle() {
    case $engine_name in
        *'Docker Desktop'*)
            case $kernel in
                *microsoft*) ;; # Docker Desktop on its WSL 2 engine brings the toolkit along
                *)
                    obstacle='Docker Desktop hands no GPU to containers without its WSL 2 engine'
                    fix='Windows: Settings > General > Use the WSL 2 based engine. Linux: use Docker Engine instead of Docker Desktop.'
                    ;;
            esac
            ;;
        *)
            case " $runtimes " in
                *' nvidia '*) ;;
                *)
                    obstacle='the NVIDIA Container Toolkit is not installed, or Docker does not know it'
                    fix='Install nvidia-container-toolkit, then: sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker'
                    ;;
            esac
            ;;
    esac
}

driver_fix() {
    case $system in
        linux) fix='With an NVIDIA card: install the driver of your distribution (Ubuntu: sudo ubuntu-drivers install) and restart.' ;;
        *) fix='With an NVIDIA card: install its driver in Windows, never inside WSL, then: wsl --shutdown' ;;
    esac
}

# Sets capabilities and shown (the same, each once), those of the cards that count: of --gpu N, or of all.
pick_cards() {
    local number uuid name capability found=''
    capabilities='' shown=''
    while IFS='|' read -r number uuid name capability; do
        [ -n "$number" ] || continue
        found="$found${found:+, }$number"
        if [ -z "$gpu" ] || [ "$gpu" = "$number" ]; then
            capabilities="$capabilities${capabilities:+ }$capability"
            case ", $shown," in
                *", $capability,"*) ;;
                *) shown="$shown${shown:+, }$capability" ;;
            esac
            [ -z "$gpu" ] || visible=$uuid
        fi
    done <<<"$cards"
    if [ -z "$capabilities" ]; then
        obstacle="there is no GPU $gpu"
        fix="The driver lists: $found"
    fi
}

# Sets build, index, why and left_out. The build that runs most of the cards is best; among equals the newest whose
# CUDA the driver knows; where it knows none, the oldest it can start (minor-version compatibility).
pick_build() {
    local major=${driver%%.*} first='' needed='' known='' later='' best=0 count=0 token passed
    local name engine_machine oldest own covered
    if [ -n "$index_wish" ]; then
        build=${index_wish##*/}
        why="GPU, torch from $index_wish, as TORCH_INDEX_URL says"
        return
    fi
    while IFS=$'\t' read -r name engine_machine oldest own covered; do
        [ "$engine_machine" = "$machine" ] || continue
        if [ "${first:-$oldest}" -ge "$oldest" ]; then first=$oldest; fi
        count_covered "$covered"
        if [ "$count" -gt 0 ] && [ "${needed:-$oldest}" -ge "$oldest" ]; then needed=$oldest; fi
        if [ "$major" -ge "$own" ]; then
            known="$name:$covered $known"
        elif [ "$major" -ge "$oldest" ]; then
            later="$later $name:$covered"
        fi
    done <deploy/torch-builds.tsv
    for token in $known $later; do
        count_covered "${token#*:}"
        if [ "$count" -gt "$best" ]; then best=$count build=${token%%:*} covered=${token#*:}; fi
    done
    if [ -z "$build" ]; then
        no_build "$major" "$first" "$needed"
        return
    fi
    passed=''
    for token in $known; do
        [ "${token%%:*}" != "$build" ] || break
        passed="$passed${passed:+, }${token%%:*}"
    done
    index=$INDEX/$build
    why_build "$known" "$passed"
    leave_out "$covered"
}

# count_covered LIST: sets count, how many of the capabilities are in the comma-separated list.
count_covered() {
    local capability
    count=0
    for capability in $capabilities; do
        case ",$1," in
            *",$capability,"*) count=$((count + 1)) ;;
        esac
    done
}

# no_build MAJOR FIRST NEEDED: the driver's branch; the first branch that starts any build for this machine; the first
# that starts one with kernels for the cards. Empty where there is no such build.
no_build() {
    local first=$2 needed=$3
    if [ -n "$first" ] && [ "$1" -lt "$first" ]; then
        obstacle="driver $driver is too old: no torch build starts before driver $first"
        needed=${needed:-$first}
        fix="Update the NVIDIA driver to $needed or newer (under WSL in Windows)."
    elif [ -n "$needed" ]; then
        obstacle="driver $driver is too old: the oldest torch build for compute capability $shown needs driver $needed"
        fix="Update the NVIDIA driver to $needed or newer (under WSL in Windows)."
    else
        obstacle="no published torch build for $machine has kernels for compute capability $shown"
        fix='If you know one, set TORCH_INDEX_URL to its index.'
    fi
}

# why_build KNOWN PASSED: the builds whose CUDA the driver knows; those of them that were passed over.
why_build() {
    local passed=$2
    case " $1" in
        *" $build:"*) why="GPU, torch build ${build}: the newest that driver $driver knows with kernels for compute capability $shown" ;;
        *) why="GPU, torch build ${build}: the oldest that driver $driver starts with kernels for compute capability $shown" ;;
    esac
    [ -z "$passed" ] || why="$why (kernels missing in $passed)"
}

# leave_out LIST: the cards that a build with these capabilities has no kernels for.
leave_out() {
    local number uuid name capability card
    while IFS='|' read -r number uuid name capability; do
        [ -n "$number" ] || continue
        [ -z "$gpu" ] || [ "$gpu" = "$number" ] || continue
        case ",$1," in
            *",$capability,"*) ;;
            *)
                card="GPU $number ($name, compute capability $capability)"
                left_out="$left_out${left_out:+, }$card"
                ;;
        esac
    done <<<"$cards"
}

tell_facts() {
    local number uuid name capability
    say "$system, Docker on $engine_name ($machine), Compose $compose_version"
    [ "$wish" != cpu ] || return 0
    [ "$smi" != listed ] || say "NVIDIA driver $driver"
    while IFS='|' read -r number uuid name capability; do
        [ -z "$number" ] || say "GPU ${number}: $name, compute capability $capability"
    done <<<"$cards"
}

tell_decision() {
    if [ -n "$obstacle" ]; then
        [ "$wish" != demand ] || fail 4 "the GPU cannot be used: $obstacle" "$fix"
        warn "serving from the CPU: $obstacle" "$fix"
    else
        say "$why"
    fi
    [ -z "$left_out" ] || warn "this build has no kernels for $left_out" 'To serve from such a card alone: --gpu N'
    [ -z "${CUDA_VISIBLE_DEVICES:-}" ] || [ -n "$gpu" ] || [ "$mode" = cpu ] || say "CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES, as the environment says"
}

# --------------------------------------------------------------------------------------------------------- actions

# run COMMAND...: the one way to anything that changes something.
run() {
    printf '+ %s\n' "$*"
    [ "$dry_run" = yes ] || "$@"
}

# give NAME VALUE: a variable for the Compose file.
give() {
    printf '  %s=%s\n' "$1" "$2"
    export "$1=$2"
}

exists() { docker container inspect "$1" >/dev/null 2>&1; }

# Sets file and container: those of the service that is there, the GPU's first.
find_service() {
    file=$GPU_FILE container=$GPU_CONTAINER
    if exists $GPU_CONTAINER; then return 0; fi
    file=$CPU_FILE container=$CPU_CONTAINER
    exists $CPU_CONTAINER
}

stop_all() {
    for file in $GPU_FILE $CPU_FILE; do
        run "${compose[@]}" -f "$file" --profile monitoring down || fail 1 'the containers could not be stopped' 'The last lines above say why.'
    done
}

show_logs() {
    find_service || fail 1 'the service is not there' 'Start it: ./deploy-gpu.sh'
    run docker logs --follow --tail 200 "$container"
}

check() {
    local status=0
    find_service || fail 1 'the service is not there' 'Start it: ./deploy-gpu.sh'
    run docker exec "$container" python -m backend.check_gpu || status=$?
    exit "$status"
}

deploy() {
    local other_file other
    [ "$wish" = cpu ] || read_cards
    decide
    tell_facts
    tell_decision
    file=$CPU_FILE container=$CPU_CONTAINER other_file=$GPU_FILE other=$GPU_CONTAINER
    if [ "$mode" = gpu ]; then file=$GPU_FILE container=$GPU_CONTAINER other_file=$CPU_FILE other=$CPU_CONTAINER; fi
    service=("${compose[@]}" -f "$file")
    [ "$monitoring" = no ] || service+=(--profile monitoring)
    # Both listen on the same port.
    if exists "$other"; then run "${compose[@]}" -f "$other_file" --profile monitoring down || fail 1 "the other service ($other) could not be stopped" ''; fi
    give TORCH_INDEX_URL "$index"
    if [ "$mode" = gpu ]; then give USE_GPU true; else give USE_GPU false; fi
    [ -z "$visible" ] || give CUDA_VISIBLE_DEVICES "$visible"
    [ -z "$port" ] || give PORT "$port"
    if [ "${compose[0]}" = docker-compose ]; then give COMPOSE_DOCKER_CLI_BUILD 1; give DOCKER_BUILDKIT 1; fi
    run "${compose[@]}" -f "$file" build || fail 1 'the image could not be built' 'The last lines above say why. If a download failed, run this again: what is done is kept.'
    run "${service[@]}" up --detach || fail 1 'the containers could not be started' \
        'The last lines above say why. Port taken: --port N. No GPU in containers (could not select device driver): --cpu, or the toolkit of docs/gpu.md#container.'
    [ "$dry_run" = no ] || return 0
    wait_until_ready
    tell_result
}

# Sets url: where the container's port is on this machine.
find_url() {
    local line
    line=$(docker port "$container" $CONTAINER_PORT/tcp 2>/dev/null | head -n 1) || true
    url=http://127.0.0.1:${line##*:}
    [ -n "$line" ] || url=http://127.0.0.1:${port:-$CONTAINER_PORT}
}

wait_until_ready() {
    local started=$SECONDS restarts answer code reason told='' state
    find_url
    restarts=$(docker inspect --format '{{.RestartCount}}' "$container") || restarts=0
    say "waiting until $url/health/ready says 200 (at most $wait_s s)"
    while true; do
        answer=$(curl --silent --max-time 10 --write-out '\n%{http_code}' "$url/health/ready") || true
        code=${answer##*$'\n'}
        [ "$code" != 200 ] || return 0
        state=$(docker inspect --format '{{.State.Status}} {{.RestartCount}} {{.State.ExitCode}} {{.State.OOMKilled}}' "$container") || state='gone 0 0 false'
        ended "$restarts" "$state"
        reason=$(printf '%s' "$answer" | sed -n 's/.*"detail":"\([^"]*\)".*/\1/p')
        [ -n "$reason" ] || reason='starting: loading models, and on the first start measuring'
        [ "$reason" = "$told" ] || printf '    %4d s  %s\n' $((SECONDS - started)) "$reason"
        told=$reason
        if [ $((SECONDS - started)) -ge "$wait_s" ]; then
            last_logs
            fail 5 "not ready after $wait_s s: $reason" 'It may still get there: --logs follows it, --wait S waits longer.'
        fi
        sleep $POLL_S
    done
}

# ended RESTARTS STATE: ends the script when the process has ended since; STATE is "status restarts exit-code out-of-memory".
ended() {
    local status restarts code oom
    read -r status restarts code oom <<<"$2"
    case $status in
        exited | dead | gone | restarting) ;;
        *) [ "$restarts" -gt "$1" ] || return 0 ;;
    esac
    last_logs
    if [ "$oom" = true ] || [ "$code" = 137 ]; then
        fail 5 'the container was killed, most likely for want of memory' 'Raise its memory limit in the Compose file.'
    fi
    case $code in
        2) fail 5 'the service refused to start (exit code 2): a setting, the device or a model is wrong' 'The log above says which; docs/settings.md has every setting.' ;;
        3) fail 5 'the device was lost (exit code 3)' 'See docs/gpu.md#gpu-lost.' ;;
        *) fail 5 "the container ended (exit code $code)" 'The log above says why.' ;;
    esac
}

last_logs() {
    say "the last lines of docker logs $container"
    docker logs --tail 60 "$container" 2>&1 || true
}

tell_result() {
    local report
    say "ready: $url"
    # The image has Python, this machine may not.
    report=$(curl --silent --max-time 10 "$url/health") || true
    docker exec -i "$container" python -c "
import json, sys
health = json.load(sys.stdin)
print('    device   ', health['device']['device'] + ':', health['device']['reason'])
for model in health['models']:
    print('    model    ', model['name'], '(' + model['task'] + '):', model['runtime'], model['dtype'])
" <<<"$report" || warn 'the report of /health could not be read' "See $url/health"
    "${service[@]}" ps || true
    say 'a first request:'
    cat <<TEXT
    curl $url/v1/embeddings -H 'Content-Type: application/json' -d '{"input": "The invoice is due on Friday."}'
TEXT
    say 'then: --check, --logs, --down'
}

main() {
    cd "$(dirname "${BASH_SOURCE[0]}")"
    parse "$@"
    read_system
    [ "$system" != windows ] || fail 3 'this script does not run in a shell of Windows' 'Use deploy-gpu.ps1 in PowerShell, or this script inside WSL 2.'
    read_docker
    case $action in
        deploy) command -v curl >/dev/null 2>&1 || fail 3 'curl is not installed' 'Install it (Debian, Ubuntu: sudo apt install curl).'; deploy ;;
        check) check ;;
        logs) show_logs ;;
        down) stop_all ;;
    esac
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then main "$@"; fi # tests read the functions alone
