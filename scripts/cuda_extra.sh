#!/bin/sh
# Print the extra that fits the NVIDIA driver of this machine: cuda13, cuda12, or nvrtc where there is no GPU that we can use.
set -eu

version=$(nvidia-smi 2>/dev/null | sed -n 's/.*CUDA[A-Z ]* Version: *\([0-9]*\).*/\1/p' | head -n 1)
case "$version" in
    12) echo cuda12 ;;
    1[3-9]) echo cuda13 ;;
    *) echo nvrtc ;;
esac
