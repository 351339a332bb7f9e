#!/bin/sh
# Checks the finished builder image from inside, as any user, offline: everything is there and works.
#
#   check-image ARCH...      prints its findings. Every problem is one line beginning with "check-image:"
set -u

tools=/opt/python/cp39-cp39/bin
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
problems=0

problem() {
    echo "check-image: $*"
    problems=$((problems + 1))
}

# answers NAME COMMAND...: the command succeeds, and the log shows its first line
answers() {
    name=$1
    shift
    if "$@" >"$work/out" 2>&1; then
        echo "$name: $(grep -m 1 . "$work/out")"
    else
        problem "$name does not answer: $* said: $(tail -n 1 "$work/out")"
    fi
}

check_settings() {
    for name in FA_LLVM FA_TORCH_INCLUDE FA_ZIG_FLAGS ZIG_GLOBAL_CACHE_DIR; do
        eval "value=\${$name:-}"
        if [ -z "$value" ]; then problem "the variable $name is not set"; fi
    done
    for program in bash tar which; do
        command -v "$program" >/dev/null || problem "$program is missing; cibuildwheel needs it"
    done
}

check_tools() {
    for tool in clang++ ld.lld llvm-readelf llvm-objdump clang-offload-bundler; do
        answers "$tool" "$FA_LLVM/$tool" --version
    done
    for tool in auditwheel patchelf ccache; do answers "$tool" "$tool" --version; done
    answers python "$tools/python" --version
    answers pip "$tools/pip" --version
    for module in build virtualenv; do answers "$module" "$tools/python" -m "$module" --version; done
    for module in hatchling elftools packaging; do answers "$module" "$tools/python" -c "import $module; print('found')"; done
    answers zig "$tools/python" -m ziglang version
    tag=$("$tools/python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
    [ -x "/opt/python/$tag-$tag/bin/python" ] || problem "/opt/python/$tag-$tag/bin/python is missing"
}

# With the flags of device code.
check_device_code() {
    cat >"$work/kernel.hip" <<'KERNEL'
#include <hip/hip_runtime.h>
extern "C" __global__ void scale(float* x, float by) {
  x[blockIdx.x * blockDim.x + threadIdx.x] *= by;
}
KERNEL
    for arch; do
        if "$FA_LLVM/clang++" -x hip --offload-device-only --no-gpu-bundle-output "--offload-arch=$arch" -O3 \
            -fuse-cuid=none "$work/kernel.hip" -o "$work/$arch.hsaco" >"$work/out" 2>&1 &&
            "$FA_LLVM/llvm-readelf" --notes "$work/$arch.hsaco" 2>&1 | grep -q "amdgcn-amd-amdhsa--$arch"; then
            echo "device code: $arch"
        else
            problem "device code for $arch does not compile: $(grep -m 1 -E 'error|cannot' "$work/out" || tail -n 1 "$work/out")"
        fi
    done
}

check_host_library() {
    floor=${FA_ZIG_FLAGS#*-linux-gnu.2.}
    floor=${floor%% *}
    cat >"$work/host.cpp" <<'HOST'
#include <torch/csrc/stable/tensor.h>
#include <string>
extern "C" int length(const char* text) { return static_cast<int>(std::string(text).size()); }
HOST
    # shellcheck disable=SC2086  # the flags are meant to be split
    if "$tools/python" -m ziglang c++ $FA_ZIG_FLAGS -isystem "$FA_TORCH_INCLUDE" "$work/host.cpp" -o "$work/host.so" \
        >"$work/out" 2>&1; then
        echo "host library: links for glibc 2.$floor"
    else
        problem "a host library does not build: $(grep -m 1 error "$work/out" || tail -n 1 "$work/out")"
    fi
    if [ -n "$(find "$ZIG_GLOBAL_CACHE_DIR" -name 'libc++.a' -newer "$work/host.cpp")" ]; then
        problem "zig's cache is cold: it built its C++ library again in $ZIG_GLOBAL_CACHE_DIR"
    fi
    newest=$("$FA_LLVM/llvm-readelf" --version-info "$work/host.so" 2>/dev/null | grep -oE 'GLIBC_2\.[0-9]+' |
        sort -t . -k 2 -n | tail -n 1)
    if [ "${newest#GLIBC_2.}" -le "$floor" ] 2>/dev/null; then
        echo "host library: needs $newest"
    else
        problem "a host library needs ${newest:-no known glibc}; expected GLIBC_2.$floor or older"
    fi
}

if [ "$#" -eq 0 ]; then
    problem "no gfx arch was named; usage: check-image ARCH..."
    exit 1
fi
check_settings
check_tools
check_device_code "$@"
check_host_library
[ "$problems" -eq 0 ]
