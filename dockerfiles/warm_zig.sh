#!/bin/sh
# Build zig's C++ library for the wheel's target once, into a cache that every user of the image can use.
#
#   warm_zig.sh SOURCE
set -eu

/opt/python/cp39-cp39/bin/python -m ziglang c++ -target x86_64-linux-gnu.2.28 -std=c++17 -O2 -shared -fPIC \
    -fvisibility=hidden -DTORCH_TARGET_VERSION=0x020a000000000000 -I "$FA_TORCH_INCLUDE" "$1" -o /tmp/warm.so
rm /tmp/warm.so
chmod -R a+rwX "$ZIG_GLOBAL_CACHE_DIR"
