#!/usr/bin/env bash
# Installs the programs that the tests use and pip cannot bring: the tesseract program with English and Spanish (for
# engine=pytesseract and the benchmarks; the service brings its own library and data), a Redis server, a browser, promtool, which comes with the Prometheus server, HAProxy for the soak test,
# and LibreOffice, whose Calc reads what is exported and whose Writer and Impress read doc and ppt.
# Where it may not (no apt, no root), it says what is missing; the tests that need it are then skipped, or fail under CI=true.
set -euo pipefail

missing=()
command -v redis-server >/dev/null 2>&1 || missing+=(redis-server)
command -v tesseract >/dev/null 2>&1 || missing+=(tesseract-ocr)
command -v promtool >/dev/null 2>&1 || missing+=(prometheus)
tesseract --list-langs 2>/dev/null | grep -qx spa || missing+=(tesseract-ocr-spa)
command -v shellcheck >/dev/null 2>&1 || missing+=(shellcheck)
command -v pdftotext >/dev/null 2>&1 || missing+=(poppler-utils)
command -v haproxy >/dev/null 2>&1 || missing+=(haproxy)
command -v chromium >/dev/null 2>&1 || missing+=(chromium)
for part in sc:calc sw:writer sd:impress; do
    library="libreoffice*/program/lib${part%:*}lo.so"
    [ "$(uname)" != Linux ] || compgen -G "/usr/lib*/$library" >/dev/null || compgen -G "/opt/$library" >/dev/null ||
        missing+=("libreoffice-${part#*:}-nogui")
done
[ ${#missing[@]} = 0 ] && exit 0

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; elif sudo -n true 2>/dev/null; then sudo -n "$@"; else return 1; fi
}

install_missing() {
    command -v apt-get >/dev/null 2>&1 || return 1
    local install=(env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}")
    as_root "${install[@]}" || { as_root apt-get update -q && as_root "${install[@]}"; }
}

# Debian starts every server that it installs, and nobody asked for a Prometheus on port 9090.
stop_servers() {
    [ -d /run/systemd/system ] || return 0
    for server in prometheus haproxy; do
        if [[ " ${missing[*]} " == *" $server "* ]]; then as_root systemctl disable --now "$server" >/dev/null 2>&1 || true; fi
    done
}

echo "==> installing ${missing[*]}"
if install_missing; then
    stop_servers
else
    echo "==> could not install ${missing[*]} (needs apt-get and root or passwordless sudo)." >&2
    echo "    The tests that need them are skipped, or fail under CI=true. By hand: sudo apt-get install ${missing[*]}" >&2
fi
