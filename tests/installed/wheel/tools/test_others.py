"""Other packages' attention beside ours: found, called as their published signatures want, or left out."""

import sys
from types import ModuleType

import peers
import pytest
import torch
from flash_attn_rocm.machine.drop_in import DropIn
from flash_attn_rocm.tools import bench, others

SHAPE = bench.Shape("forward", 16, True, 2, 32, "fp16", 16)


def module(function):
    made = ModuleType("other")
    made.flash_attn_func = function
    return made


def found_with(monkeypatch, **functions):
    """The functions of ``others``, and its problems, where modules with these are installed."""
    monkeypatch.setattr(others.drop_in, "find", lambda: DropIn("another"))
    for name, function in functions.items():
        monkeypatch.setitem(sys.modules, name, module(function))
    return others.installed()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("peer", peers.SIGNATURES)
def test_our_call_binds_to_what_was_published(peer, causal, qkv, monkeypatch):
    """Only q, k, v and causal are given: no dropout, window, bias or log-sum-exp."""
    told = []
    name = peer.partition(" ")[0]
    functions, _ = found_with(
        monkeypatch, **{name: peers.stand_in(peer, lambda **given: told.append(given) or given["q"])}
    )
    assert functions[name](*qkv, causal=causal) is qkv[0]
    [given] = told
    defaults = {each.name: each.default for each in peers.signature_of(peer).parameters.values()}
    assert given == {**defaults, **dict(zip("qkv", qkv, strict=True)), "causal": causal}
    assert (given["dropout_p"], given["window_size"]) == (0.0, (-1, -1))


@pytest.mark.parametrize("peer", peers.SIGNATURES)
def test_a_stand_in_refuses_what_the_peer_would(peer, qkv):
    function = peers.stand_in(peer, lambda **given: given["q"])
    with pytest.raises(TypeError, match="is_causal"):
        function(*qkv, is_causal=True)
    with pytest.raises(TypeError, match="missing a required argument: 'v'"):
        function(*qkv[:2], causal=True)


def test_a_log_sum_exp_beside_the_result_is_left_out(qkv, monkeypatch):
    """aiter returned a tuple of one once."""
    with_lse = peers.stand_in(peers.FLASH_ATTN, lambda q, causal, **_: (q + causal, "lse"))
    alone = peers.stand_in(peers.OLDER_AITER, lambda q, causal, **_: (q - int(causal),))
    functions, problems = found_with(monkeypatch, flash_attn=with_lse, aiter=alone)
    assert (list(functions), problems) == (["flash_attn", "aiter"], ())
    assert torch.equal(functions["flash_attn"](*qkv, causal=True), qkv[0] + 1)
    assert torch.equal(functions["aiter"](*qkv, causal=True), qkv[0] - 1)


def test_this_projects_flash_attn_is_not_another(monkeypatch):
    monkeypatch.setattr(others.drop_in, "find", lambda: DropIn("ours"))
    assert "flash_attn" not in others.installed()[0]


@pytest.mark.parametrize("name", ["flash_attn", "aiter"])
def test_a_package_without_the_function_is_left_out_with_its_words(name, monkeypatch):
    """Another project is named aiter, too: iterators that are asynchronous."""
    monkeypatch.setattr(others.drop_in, "find", lambda: DropIn("another" if name == "flash_attn" else "none"))
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    functions, problems = others.installed()
    assert name not in functions
    [problem] = [each for each in problems if each.startswith(name)]
    assert problem.startswith(f"{name} is left out: AttributeError: module '{name}' has no attribute")


def test_a_row_of_bench_is_made_by_such_a_call():
    function = others._first_result(
        peers.stand_in(peers.AITER, lambda q, k, v, causal, **_: bench._plain(q, k, v, causal=causal))
    )
    rows = bench._compare(SHAPE, {"sdpa": bench._sdpa, "aiter": function}, torch.device("cpu"), 1)
    assert [(row.implementation, row.path, row.problem) for row in rows] == [
        ("sdpa", "pytorch", ""), ("aiter", "aiter", ""),
    ]  # fmt: skip


def test_a_peer_with_another_signature_is_a_row_with_its_words():
    def changed(q, k, v, is_causal):
        raise AssertionError

    rows = bench._compare(SHAPE, {"aiter": others._first_result(changed)}, torch.device("cpu"), 1)
    assert "got an unexpected keyword argument 'causal'" in rows[0].problem
