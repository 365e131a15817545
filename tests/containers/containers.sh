#!/usr/bin/env bash
# Podman in place of Docker, for the tests of this folder on machines without a Docker daemon.
#
# Where no image registry answers, it makes stand-ins for the public base images from Debian's packages, under the
# same names and tags, so that Dockerfiles and Compose files are used as they are. Needs root and apt for that.
#
#   containers.sh setup             install what is missing, fetch or make the base images
#   containers.sh build ARGS...     podman build, with this machine's certificates and its folder of wheels, if any
#   containers.sh compose ARGS...   podman-compose with the same
#   containers.sh podman ARGS...    podman
#
# Limits of podman 4.3 (Debian 12): `condition: service_healthy` is not waited for, and health checks run when asked to
# (podman healthcheck run). There is no stand-in for Grafana.
set -euo pipefail

state=${CONTAINERS_STATE:-${XDG_CACHE_HOME:-$HOME/.cache}/financia-containers}
mkdir -p "$state"
conf=$state/containers.conf
cat >"$conf" <<CONF
[engine]
runtime = "runc"
[containers]
default_ulimits = ["nofile=$(ulimit -Hn):$(ulimit -Hn)", "nproc=4096:4096"]
CONF
export CONTAINERS_CONF=$conf
export BUILDAH_FORMAT=docker # OCI's own format has no HEALTHCHECK

# Behind a proxy with a certificate of its own, what runs inside a build must know it too.
certificates=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
mounts=()
variables=()
if [[ -f $certificates ]]; then
    mounts+=(-v "$certificates:/etc/ssl/certs/ca-certificates.crt:ro")
    variables+=(--env PIP_CERT=/etc/ssl/certs/ca-certificates.crt)
fi
if [[ -n ${PIP_FIND_LINKS:-} && -d ${PIP_FIND_LINKS:-} ]]; then
    mounts+=(-v "$PIP_FIND_LINKS:/wheels:ro")
    variables+=(--env PIP_FIND_LINKS=/wheels)
fi

install_tools() {
    local missing=() tool
    for tool in podman runc debootstrap; do command -v "$tool" >/dev/null || missing+=("$tool"); done
    if [ ${#missing[@]} -gt 0 ]; then
        echo "==> installing ${missing[*]}"
        apt-get update -q >/dev/null
        DEBIAN_FRONTEND=noninteractive apt-get install -y -q podman runc debootstrap >/dev/null
    fi
    [ -x "$state/venv/bin/podman-compose" ] || { python3 -m venv "$state/venv" && "$state/venv/bin/pip" install -q podman-compose; }
}

# image NAME PACKAGES [podman import options...]: fetched; where no registry answers, made of Debian packages.
image() {
    local name=$1 packages=$2 root
    shift 2
    podman image exists "$name" && return
    podman pull -q "$name" >/dev/null 2>&1 && return
    echo "==> making a stand-in for $name"
    touch "$state/stand-ins"
    root=$(mktemp -d)
    debootstrap --variant=minbase --include="$packages" bookworm "$root" >"$state/debootstrap.log" 2>&1
    [ ! -e "$root/usr/bin/python3" ] || ln -sf python3 "$root/usr/bin/python"
    rm -f "$root"/usr/lib/python3*/EXTERNALLY-MANAGED
    tar -C "$root" -c . | podman import -q "$@" - "$name" >/dev/null
    rm -rf "$root"
}

setup() {
    install_tools
    image docker.io/library/python:3.11-slim-bookworm python3,python3-venv,python3-pip,ca-certificates
    image docker.io/library/redis:7-bookworm redis-server --change 'CMD ["redis-server","--protected-mode","no"]' --change 'EXPOSE 6379'
    image docker.io/prom/prometheus:v2.53.0 prometheus --change 'ENTRYPOINT ["prometheus"]' --change 'EXPOSE 9090'
}

# A stand-in has another digest than the image it stands for. Where there are any, files that are pinned by digest
# (tools/pin_images.sh) are used from a copy without digests.
enter_files() {
    [ -e "$state/stand-ins" ] && grep -qs '@sha256:' Dockerfile.* docker-compose*.yml || return 0
    rm -rf "$state/tree"
    mkdir "$state/tree"
    git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -T - -c | tar -x -C "$state/tree"
    cd "$state/tree"
    sed -i -E 's/@sha256:[0-9a-f]{64}//' Dockerfile.* docker-compose*.yml
}

case ${1:-} in
    setup)
        if docker version >/dev/null 2>&1 && docker compose version >/dev/null 2>&1; then exit 0; fi # Docker it is
        setup
        ;;
    build) shift; enter_files; podman build --network host "${mounts[@]}" "${variables[@]}" "$@" ;;
    compose) shift; enter_files; "$state/venv/bin/podman-compose" --podman-build-args="--network host ${mounts[*]} ${variables[*]}" "$@" ;;
    podman) shift; podman "$@" ;;
    *) sed -n '2,14p' "$0"; exit 2 ;;
esac
