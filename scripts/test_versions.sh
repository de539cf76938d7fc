#!/bin/sh
# Run the tests that depend most on Python's version (scopes, tracebacks, tracing, lines) under the other versions that we support:
# test_versions.sh TOOLS FOLDER. An interpreter is looked for on the PATH and where pyenv puts it; a version without one is skipped, and named.
set -eu
tools=$1
folders=$2
tests="tests/program tests/widgets/test_cell_program.py tests/recording/test_launch_lines.py"
ours=$("$tools/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')

for version in 3.11 3.12 3.13 3.14; do
    [ "$version" = "$ours" ] && continue
    found=""
    for candidate in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python; do
        if "$candidate" -c "import sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != '$version')" 2>/dev/null; then
            found=$candidate
        fi
    done
    if [ -z "$found" ]; then
        echo "Python $version: skipped, since there is none on this machine"
        continue
    fi
    folder=$folders/$version
    if [ ! -e "$folder/.made" ] || [ constraints.txt -nt "$folder/.made" ]; then
        "$found" -m venv --clear --without-pip "$folder"
        sh scripts/install.sh "$tools" "$folder/bin/python" --constraint constraints.txt hypothesis ipython numpy pytest pytest-timeout
        touch "$folder/.made"
    fi
    echo "Python $version: $tests"
    # Plugins that are found by themselves are rewritten whole for the sake of their assertions: for hypothesis that takes a second.
    PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 PYTHONPATH=toolkit:widgets \
        "$folder/bin/python" -m pytest --quiet -p no:cacheprovider -p pytest_timeout $tests
done
