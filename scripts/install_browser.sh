#!/bin/sh
# Make sure that the browser tests have a Chromium: one that is on the PATH, or else the distribution's.
set -eu

for name in chromium chromium-browser google-chrome google-chrome-stable; do
    if command -v "$name" >/dev/null 2>&1; then
        exit 0
    fi
done
sh "$(dirname "$0")/apt_install.sh" chromium || {
    echo "The browser tests need Chromium or Google Chrome on the PATH; on Debian or Ubuntu: apt-get install chromium" >&2
    exit 1
}
