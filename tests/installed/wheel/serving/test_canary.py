"""The guard of the check at first use against hangs. The check itself is tested on the emulator."""

import threading
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from archs import ARCH
from conftest import hidden_as_0
from flash_attn_rocm.arguments.normal_form import Inputs, Options
from flash_attn_rocm.canary import calls as _canary_calls
from flash_attn_rocm.canary import first_use, making, reference
from flash_attn_rocm.canary.rows import ATTENTION, CACHE, GRADIENTS, PACKED, PAGED
from flash_attn_rocm.launch import forward_pass
from flash_attn_rocm.machine import remembered
from flash_attn_rocm.reference import operators
from flash_attn_rocm.serving.layouts import Device

GPU = torch.device("cuda", 0)


@pytest.fixture
def stream(monkeypatch):
    """A GPU's stream that is busy until the query number ``state["asks"]``."""
    state = {"asks": 3, "recorded": 0}

    class Event:
        def record(self, _stream):
            state["recorded"] += 1

        def query(self):
            state["asks"] -= 1
            return state["asks"] <= 0

    monkeypatch.setattr(torch.cuda, "Stream", lambda where: SimpleNamespace(where=where))
    monkeypatch.setattr(torch.cuda, "stream", lambda _stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(_canary_calls, "SECONDS", 0.05)
    return state


def test_a_launch_that_ends_gives_what_it_gives(stream):
    assert _canary_calls.ended(GPU, lambda: (1, 2)) == (1, 2)
    assert (stream["asks"], stream["recorded"]) == (0, 1)


def test_a_launch_that_does_not_end_is_given_up(stream):
    stream["asks"] = 10**9
    assert _canary_calls.ended(GPU, lambda: (1, 2)) is None


def test_a_hang_switches_the_family_off_in_words(stream, monkeypatch, tmp_path):
    stream["asks"] = 10**9
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(_canary_calls, "moved", lambda x, _where: x)
    monkeypatch.setattr(first_use.capture, "is_capturing", lambda _where: False)
    family = remembered.Family(ARCH, "fp16", 64)
    try:
        words = first_use._known(
            family,
            GPU,
            lambda where: _canary_calls.attention_problem(family, lambda *_: (), Device(ARCH, 8), where),
        )
    finally:
        first_use.forget()
    assert f"the kernels for fp16, head_dim 64 are disabled on {ARCH}" in words
    assert "causal: it did not end within 0 s" in words
    [(_, found)] = remembered.failures()
    assert found.words == "causal: it did not end within 0 s"


def test_other_threads_wait_for_a_check(monkeypatch, tmp_path):
    """Their calls would run a kept row that is not checked yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(first_use, "_wanted", lambda: True)
    monkeypatch.setattr(first_use.capture, "is_capturing", lambda _where: False)
    family, begun, said = remembered.Family(ARCH, "fp16", 64), threading.Event(), []

    def problem(_where):
        begun.set()
        other.join(0.2)
        assert first_use._known(family, GPU, problem) == "", "the check's own launches"
        return "wrong"

    def ask():
        begun.wait()
        said.append(first_use._known(family, GPU, problem))

    other = threading.Thread(target=ask)
    other.start()
    try:
        own = first_use._known(family, GPU, problem)
        other.join()
        assert said == [own]
        assert "wrong" in own
    finally:
        first_use.forget()


def test_without_memory_nothing_is_said_of_the_kernels(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(first_use, "_wanted", lambda: True)
    monkeypatch.setattr(first_use.capture, "is_capturing", lambda _where: False)

    def answer(*_arguments):
        message = "out of memory"
        raise torch.OutOfMemoryError(message)

    q = torch.zeros(1, 1, 1, 64, dtype=torch.float16)
    try:
        assert first_use.failure(answer, Inputs(q, q, q), Options(0.125), Device(ARCH, 8)) is None
        assert not first_use._found
    finally:
        first_use.forget()
    assert list(tmp_path.rglob("*.json")) == []


def test_what_is_set_as_default_changes_nothing(monkeypatch, tmp_path):
    """Tensors of another dtype or device ended the check, and so switched right kernels off."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(first_use, "_wanted", lambda: True)
    monkeypatch.setattr(first_use.capture, "is_capturing", lambda _where: False)

    def answer(inputs, options, state, _device, **_tall):
        return operators.forward(inputs, options, state, want_probabilities=False)[:2]

    q = torch.zeros(1, 1, 1, 64, dtype=torch.float16)
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"):
            assert first_use.failure(answer, Inputs(q, q, q), Options(0.125), Device(ARCH, 8)) == ""
    finally:
        torch.set_default_dtype(torch.float32)
        first_use.forget()


def test_the_check_has_calls_of_every_path():
    """matrix, split and reference, by the plan of the library."""
    paths = set()
    for call in _canary_calls.attention_calls(remembered.Family(ARCH, "fp16", 64)):
        paths.add(forward_pass.choose(call.inputs, call.options, Device(ARCH, 8)).plan.path)
    assert paths == {"matrix", "split", "reference"}


FAMILIES = [remembered.Family(ARCH, dtype, 64) for dtype in ("fp16", "bf16")]
MASKED = [family._replace(work=remembered.MASKED) for family in FAMILIES]
CACHES = {row.why for row in ATTENTION if row.store in {CACHE, PAGED}}


@pytest.mark.parametrize("family", [*FAMILIES, *MASKED], ids=str)
def test_the_plain_computation_is_that_of_the_pytorch_implementation(family):
    """Compares out and the log-sum-exp, in all calls. Infinities and NaN are at equal places."""
    for call in _canary_calls.attention_calls(family):
        state = reference.dropout_state(call)
        wanted = operators.forward(call.inputs, call.options, state, want_probabilities=False)
        for one, other in zip(reference.forward(call), wanted, strict=False):
            close(one, other, call.name)


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_plain_gradients_are_those_of_the_pytorch_implementation(family):
    calls = _canary_calls.gradient_calls(family._replace(work="separate"))
    seen = []
    for call in calls:
        given, gradients = reference.backward(call)
        wanted = hidden_as_0(given)
        cancelled = _canary_calls._cancelled(call)
        for name, one, other in zip(("dq", "dk", "dv"), gradients, wanted, strict=True):
            close(one, other, f"{call.name}: {name}", least=cancelled.get(name, 0.0))
        seen.append(call.nan)
    assert {*seen} == {True, False}


def test_dense_tensors_have_strides_of_their_own():
    """Such calls catch a kernel that uses one tensor's row stride for another."""
    family = FAMILIES[0]
    for call in (next(_canary_calls.attention_calls(family)), next(_canary_calls.gradient_calls(family))):
        assert distinct(x.stride(1) for x in (*call.inputs[:3], call.dout))


def test_caches_have_strides_of_their_own():
    """Pages, rows and heads of k and v may have any strides."""
    calls = [call for call in _canary_calls.attention_calls(FAMILIES[0]) if call.name in CACHES]
    assert len(calls) == len(CACHES)
    for call in calls:
        assert distinct(x.stride(0) for x in call.inputs[1:3]), call.name
        assert distinct(x.stride(1) for x in call.inputs[1:3]), call.name


@pytest.mark.parametrize("rows", [ATTENTION, GRADIENTS], ids=["attention", "gradients"])
@pytest.mark.parametrize("featured", [False, True])
def test_each_loop_has_a_dense_batch_with_its_heads_first(rows, featured):
    """The check had no such call: of the layouts of scaled_dot_product_attention, only single sequences."""
    own = [row for row in rows if row.heads_first and row.featured == featured and len(row.rows) > 1]
    assert own
    for call in making.made(own, FAMILIES[0]):
        given = (*call.inputs[:3], call.dout)
        assert distinct(x.stride(2) for x in given), call.name
        assert distinct((x.stride(1), x.stride(2)) for x in given), call.name
        assert all(x.stride(2) > x.stride(1) for x in given)


def test_pages_hold_more_keys_than_there_are_queries():
    """Otherwise a cut of lengths to the number of queries changes nothing. The reference kernel did cut."""
    rows = [row for row in ATTENTION if row.store == PAGED]
    assert {row.narrower > 0 for row in rows} == {True, False}
    assert {row.why for row in rows if max(row.keys) <= sum(row.rows)} == set()


def distinct(strides):
    strides = [*strides]
    return len({*strides}) == len(strides)


def test_a_row_that_sees_no_key_has_to_be_exactly_0():
    """The least number of fp16 used to be within the limit."""

    def answer(inputs, options, state, _device):
        out, lse = operators.forward(inputs, options, state, want_probabilities=False)[:2]
        return out.where(out != 0, 2.0**-24), lse

    found = _canary_calls.attention_problem(FAMILIES[0], answer, Device(ARCH, 8), torch.device("cpu"))
    assert found == "causal: out is not 0 where a row sees no key"


def close(one, other, name, least=0.0):
    """Equal except for the rounding of the PyTorch implementation's results and inputs."""
    most = other.float().nan_to_num(0, 0, 0).abs().max().item()
    off = max(least, max(torch.finfo(other.dtype).eps, 2.0**-18) * most)
    torch.testing.assert_close(
        one.float(), other.float(), rtol=0, atol=off, equal_nan=True, msg=lambda words: f"{name}: {words}"
    )


def test_each_path_of_gradients_has_a_finding_of_its_own():
    """Findings from the time of one family for all gradients, True or False, are ignored."""
    kept = {
        remembered.file_of(remembered.Family(ARCH, "fp16", 64, path), "7.2").name
        for path in ("", "separate", "fused", True, False)
    }
    assert len(kept) == 5
    assert str(remembered.Family(ARCH, "fp16", 64, "fused")) == "fused gradients of fp16, head_dim 64"


LOOPS = {
    "forward": [row for row in ATTENTION if not row.why.startswith("decode")],
    "decode": [row for row in ATTENTION if row.why.startswith("decode")],
    "gradients": [row for row in GRADIENTS if not row.nan],
}


@pytest.mark.parametrize("loop", LOOPS)
def test_each_feature_comes_alone(loop):
    """A kernel that ran its plain loop for dropout or ALiBi was right in calls with another feature."""
    used = [features_of(row) for row in LOOPS[loop]]
    assert set().union(*(each for each in used if len(each) == 1)) == set().union(*used)


def features_of(row):
    own = {"softcap": row.softcap, "ALiBi": row.alibi, "dropout": row.dropout, "pages": row.store == PAGED}
    return {name for name, used in own.items() if used}


@pytest.mark.parametrize("featured", [False, True])
def test_windows_of_gradients_end_at_each_key_of_a_thread(featured):
    """A thread of gfx1030's has four keys, and compares each with an end that moves with its row."""
    rows = [row for row in GRADIENTS if row.featured == featured and not row.nan and row.window[1] >= 0]
    ends = {
        (keys - queries + row.window[1]) % 4
        for row in rows
        for queries, keys in zip(row.rows, row.keys, strict=True)
    }
    assert ends == {0, 1, 2, 3}
    assert 0 in {row.window[0] for row in rows}


@pytest.mark.parametrize("featured", [False, True])
def test_a_sequence_has_more_keys_than_all_have_queries(featured):
    """Otherwise a cut of one number to the other leaves gradients unchanged."""
    rows = [row for row in GRADIENTS if row.featured == featured and row.store == PACKED]
    assert any(max(row.keys) > sum(row.rows) for row in rows)
