#!/bin/sh
# Install packages for an interpreter: install.sh TOOLS PYTHON ARGUMENTS, where TOOLS holds uv and pip's own Python. uv takes a third of pip's
# time. It does not read pip's settings, so where packages come from elsewhere than PyPI, pip does it. Neither compiles: of what the tools
# bring along, little is ever imported.
set -eu
tools=$1
python=$2
shift 2

"$tools/uv" pip install --quiet --python "$python" "$@" && exit
echo "uv could not install that: pip tries it, with your settings of pip"
exec "$tools/python" -m pip --python "$python" install --quiet --no-compile --disable-pip-version-check "$@"
