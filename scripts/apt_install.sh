#!/bin/sh
# Install Debian or Ubuntu packages without asking: as root, or through sudo where it needs no password. Fails quietly elsewhere.
set -eu

command -v apt-get >/dev/null 2>&1 || exit 1
if [ "$(id -u)" -eq 0 ]; then
    as_root=""
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    as_root="sudo -n"
else
    exit 1
fi

echo "Installing with apt-get: $*"
$as_root apt-get update -qq
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
