#!/bin/sh
# Write the constraints: one version for every package that any extra or group needs. The two GPU extras exclude each other, hence two files.
# Python 3.15 has no constraints yet: CuPy and cupti-python have no wheels for it.
# Versions that are already in a file stay as they are while they fit; `--upgrade` takes the newest.
set -eu
cd "$(dirname "$0")/.."

compile() {
    extra=$1
    file=$2
    shift 2
    .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --no-annotate --custom-compile-command "make lock" "$@" \
        --extra lab --extra perfetto --group dev --group lock --extra "$extra" pyproject.toml --output-file "$file"
    # Without the markers that hold wherever we lock for (`environments` in pyproject.toml), what is left tells something.
    sed -i -E "s/( and)? (python_full_version < '3.15'|platform_machine == 'x86_64'|sys_platform == 'linux')//g; s/ ; *and / ; /; s/ ;\$//" "$file"
}

compile cuda13 constraints.txt "$@"
compile cuda12 constraints-cuda12.txt "$@"
