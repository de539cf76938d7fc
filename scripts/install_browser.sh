#!/bin/sh
# Make sure that the browser tests have a Chromium: the distribution's shell without a window, which takes the least time, or else any.
set -eu

found() { command -v "$1" >/dev/null 2>&1; }
install() { sh "$(dirname "$0")/apt_install.sh" "$1"; }

found chromium-headless-shell || install chromium-headless-shell 2>/dev/null && exit 0
for name in chromium chromium-browser google-chrome google-chrome-stable; do
    found "$name" && exit 0
done
install chromium || {
    echo "The browser tests need Chromium or Google Chrome on the PATH; on Debian or Ubuntu: apt-get install chromium" >&2
    exit 1
}
