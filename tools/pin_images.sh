#!/usr/bin/env bash
# Pins the public images of Dockerfiles and Compose files by digest, as their registries name them today.
#   tools/pin_images.sh            # rewrites name:tag, or name:tag@sha256:..., with today's digest
#   tools/pin_images.sh --check    # only says what is stale; exit code 1 if anything is
# The tag stays beside the digest: it tells people what this is. The digest is the one of the index of all processors,
# where an image is built for several. A registry that does not answer changes nothing: the other images are pinned, its
# lines stay, and the exit code is 2. Images that are built here are left alone.
set -euo pipefail
cd "$(dirname "$0")/.."

files=(Dockerfile.backend Dockerfile.backend.gpu docker-compose.yml docker-compose.gpu.yml)
status=0
for image in $(sed -nE 's/^(FROM|[[:space:]]+image:) ([^ $]+:[^ $]+)( .*)?$/\2/p' "${files[@]}" | grep -v ^financia- | sort -u); do
    tagged=${image%@*}
    if ! digest=$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$tagged"); then
        echo "$image: not asked, stays as it is" >&2
        status=2
    elif [ "$image" = "$tagged@$digest" ]; then
        echo "$image is up to date"
    elif [ "${1:-}" = --check ]; then
        echo "$image should be $tagged@$digest"
        [ $status = 2 ] || status=1
    else
        echo "$image is now $tagged@$digest"
        sed -i.before -E "s,^(FROM|[[:space:]]+image:) $image( .*)?\$,\1 $tagged@$digest\2," "${files[@]}"
        rm -f "${files[@]/%/.before}"
    fi
done
exit $status
