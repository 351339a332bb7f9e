#!/bin/sh
# Build zig's C++ library once, into a cache that every user of the image can use.  zig keeps one for each set of
# flags, so these are the wheel's own: FA_ZIG_FLAGS is kernels/build/zig_flags.txt.
#
#   warm_zig.sh SOURCE
set -euf

# shellcheck disable=SC2086  # the flags are meant to be split
/opt/python/cp39-cp39/bin/python -m ziglang c++ $FA_ZIG_FLAGS -isystem "$FA_TORCH_INCLUDE" "$1" -o /tmp/warm.so
rm /tmp/warm.so
chmod -R a+rwX "$ZIG_GLOBAL_CACHE_DIR"
