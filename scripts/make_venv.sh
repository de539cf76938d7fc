#!/bin/sh
# Make a virtual environment: make_venv.sh PYTHON FOLDER. Says what to do where Python or its venv module is missing.
set -eu
python=$1
folder=$2

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "Streamscope needs Python 3.11 or later, and '$python' is not one; name another: make setup PYTHON=python3.12" >&2
    exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info >= (3, 15))'; then
    echo "The constraints pin packages for Python 3.11 to 3.14, and '$python' is later. Name another: make setup PYTHON=python3.14," >&2
    echo "or install without constraints: '$python' -m pip install '.[nvrtc]'" >&2
    exit 1
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    sh "$(dirname "$0")/apt_install.sh" python3-venv || {
        echo "'$python' cannot make virtual environments; on Debian or Ubuntu: apt-get install python3-venv" >&2
        exit 1
    }
fi
exec "$python" -m venv "$folder"
