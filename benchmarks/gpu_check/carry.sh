#!/usr/bin/env bash
# Downloads what a machine that has torch, transformers and numpy lacks of this project's packages, as wheels to take along.
#
#   benchmarks/gpu_check/carry.sh FOLDER [PYTHON]     # of the other machine, 3.12 unless said; Linux on x86-64
#
# They are split into FOLDER/1, FOLDER/2, … of at most 15 MB, for ways that carry little at once (docs/gpu.md). No weights: the
# check makes its models. Left out is what a card does not need (OpenVINO, Tesseract, speech).
set -euo pipefail
folder=${1:?folder for the wheels} python=${2:-3.12}
packages=(fastapi starlette uvicorn httptools orjson pydantic pydantic-core pydantic-settings python-dotenv typing-inspection
    annotated-types annotated-doc redis hiredis httpx2 httpcore2 truststore huggingface-hub transformers tokenizers python-stdnum
    phonenumberslite py3langid python-multipart rapidfuzz defusedxml snowballstemmer numkong asyncpg
    xlsxwriter sniffio pytesseract ml-dtypes pytest pytest-asyncio opentelemetry-api kornia kornia_rs zxing-cpp pypdfium2)
cd "$(dirname "$0")/../.."
wanted=()
for package in "${packages[@]}"; do # in the versions that are tested here, where constraints.txt has one
    line=$(grep -i -m1 -E "^${package//[-_]/[-_]}==" constraints.txt || echo "$package")
    wanted+=("${line%%;*}")
done
platforms=()
for tag in manylinux_2_28 manylinux_2_27 manylinux_2_24 manylinux_2_17 manylinux2014 manylinux1; do
    platforms+=(--platform "${tag}_x86_64")
done
mkdir -p "$folder"
python3 -m pip download --quiet --no-deps --only-binary=:all: --implementation cp --python-version "$python" "${platforms[@]}" \
    --dest "$folder" "${wanted[@]}"
python3 -m pip wheel --quiet --no-deps --wheel-dir "$folder" seqeval # published as source alone
part=1 bytes=0
for wheel in "$folder"/*.whl; do
    size=$(stat -c %s "$wheel")
    if ((bytes + size > 15000000)); then part=$((part + 1)) bytes=0; fi
    bytes=$((bytes + size))
    mkdir -p "$folder/$part" && mv "$wheel" "$folder/$part/"
done
du -sm "$folder"/*
