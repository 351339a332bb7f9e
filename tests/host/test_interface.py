"""The C interface: any arguments give a status and words, and a launch only what the hardware can do."""

import subprocess
import sys

import pytest

from tests.host.interface import (
    BF16,
    CHECKOUT,
    FP32,
    INT32,
    INVALID,
    MOST_DIMS,
    OK,
    AppendCall,
    FwdCall,
    Library,
    compile_library,
    tensor,
)


@pytest.fixture(scope="session")
def library_file(tmp_path_factory):
    return compile_library(tmp_path_factory.mktemp("interface"))


@pytest.fixture(scope="session")
def library(library_file):
    return Library(library_file)


def test_any_arguments(library_file):
    program = [sys.executable, "-m", "tests.host.fuzzed_calls", library_file]
    done = subprocess.run(program, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"


def append(**changes):
    heads = {name: tensor([2, 3, 2, 64]) for name in ("k", "v")}
    caches = {name: tensor([2, 32, 2, 64]) for name in ("k_cache", "v_cache")}
    given = {"q": tensor([2, 5, 4, 64]), "cache_seqlens": tensor([2], INT32)}
    return AppendCall(**given | heads | caches | changes)


def rotary(**changes):
    angles = {name: tensor([40, 16]) for name in ("cos", "sin")}
    return append(**{"q_out": tensor([2, 5, 4, 64])} | angles | changes)


def forward(**changes):
    heads = {name: tensor([2, 5, 4, 64]) for name in ("q", "k", "v", "out")}
    rules = {"lse": tensor([2, 4, 5], FP32), "softmax_scale": 1.0, "window_left": -1, "window_right": -1}
    return FwdCall(**heads | rules | changes)


# 256 threads move 64 rows of 4 threads, or 8 of 32 where rows are not aligned.
@pytest.mark.parametrize(
    ("call", "grid"),
    [
        (append(), (1, 2, 2)),
        (rotary(), (1, 2, 3)),
        (append(k=tensor([2, 40, 2, 64]), v=tensor([2, 40, 2, 64])), (2, 2, 2)),
        (append(k=tensor([2, 3, 2, 64], data=2)), (1, 2, 2)),
        (append(**{n: tensor([2, 40, 2, 64], data=2) for n in ("k", "v")}), (10, 2, 2)),
        (rotary(**{n: tensor([2, 2**20, 4, 64]) for n in ("q", "q_out")}), (2**16, 2, 3)),
        (append(**{n: tensor([2, 2, 2, 64], strides=(-512, 256, -64, 1)) for n in ("k", "v")}), (1, 2, 2)),
    ],
)
def test_launches_of_append(library, call, grid):
    status, words, launch = library.call(call)
    assert (status, words) == (OK, "")
    assert tuple(launch.grid) == grid
    assert tuple(launch.block) == (256, 1, 1)


def test_nothing_to_append_launches_nothing(library):
    nothing = {name: tensor([2, 0, 2, 64]) for name in ("k", "v")}
    assert library.call(append(**nothing)) == (OK, "", None)


FAR = (2**40, 2**46, 64, 1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (append(k=tensor([2, 3, 2, 64], BF16)), "k: expected dtype fp16, got bf16"),
        (append(v=tensor([2, 3, 2, 64], device=1)), "v: expected device 0 like q, got 1"),
        (append(q=tensor([2, 5, 4, 32])), "q: expected shape (2, 5, 4, 64), got shape (2, 5, 4, 32)"),
        (append(k=tensor([2, 3, 2, 64], data=1)), "k: expected an address that is a multiple of"),
        (append(k=tensor([2, 3, 2, 64], data=None)), "k: expected the address of its elements, got null"),
        (append(v=tensor([2, 3, 2, 64], strides=FAR)), "v: expected elements at most 2^46 apart, got shape"),
        (append(v=tensor([2, -3, 2, 64])), "v: expected sizes of at least 0, got shape (2, -3, 2, 64)"),
        (append(cache_seqlens=tensor([])), "cache_seqlens: expected 1 dimensions, got shape ()"),
        (
            append(k_cache=tensor([2, 32, 2, 64], strides=(4096, 0, 64, 1))),
            "k_cache: expected memory for each element, got a stride of 0",
        ),
        (
            append(**{n: tensor([2, 2**29, 4, 64], strides=(0, 0, 64, 1)) for n in ("k", "v")}),
            "k_cache: expected shape (2, 32, 4, 64), got shape (2, 32, 2, 64)",
        ),
        (
            rotary(**{n: tensor([2, 2**29, 4, 64]) for n in ("q", "q_out")}),
            "rows of q times its heads: expected at most",
        ),
        (forward(v=tensor([2, 5, 4, 64], data=None)), "v: expected the address of its elements, got null"),
        (forward(k=tensor([2, 5, -4, 64])), "k: expected sizes of at least 0, got shape (2, 5, -4, 64)"),
    ],
)
def test_wrong_arguments(library, call, words):
    status, found, launch = library.call(call)
    assert status == INVALID
    assert launch is None
    assert " cannot use its arguments:\n  - " in found
    assert words in found


@pytest.mark.parametrize("dims", [-1, MOST_DIMS + 1, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("call", [append, forward])
def test_numbers_of_dimensions_that_cannot_be(library, call, dims):
    arguments = call()
    arguments.k.dims = dims
    status, words, _ = library.call(arguments)
    assert status == INVALID
    assert f"k: expected 0 to {MOST_DIMS} dimensions, got {dims}" in words
