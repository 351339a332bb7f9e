"""These tests run against the installed wheel, from a folder outside of the checkout, on CPU tensors.

They need PyTorch, NumPy, pytest and the wheel, but no GPU, ROCm or network.
"""

import os

import pytest
import torch
from archs import ARCH, HostMemory, archs_with
from flash_attn_rocm.arguments.normal_form import BackwardCall, Inputs, Options
from flash_attn_rocm.autograd import recall
from flash_attn_rocm.diagnosis import notice
from flash_attn_rocm.launch import backward_pass, forward_pass
from flash_attn_rocm.reference import operators
from flash_attn_rocm.reference.sequences import parts
from flash_attn_rocm.serving import machine

FULL = os.environ.get("FA_FULL", "") not in {"", "0"}
FWD_ARGUMENTS = tuple(each.name for each in torch.ops.flash_attn_rocm.fwd.default._schema.arguments)
BWD_ARGUMENTS = tuple(each.name for each in torch.ops.flash_attn_rocm.bwd.default._schema.arguments)


def pytest_configure(config):
    torch.set_num_threads(1)  # the tensors are small: threads cost more than they give
    config.addinivalue_line("markers", "full: slow, only with FA_FULL")
    config.addinivalue_line("markers", "needs_kernels(op, dtype): an arch of the wheel has them")


def pytest_collection_modifyitems(items):
    # Left out instead of skipped: a skipped test verifies nothing.
    items[:] = [item for item in items if FULL or not item.get_closest_marker("full")]
    items[:] = [item for item in items if all(archs_with(*each) for each in needs_of(item))]


def needs_of(item):
    """The ops, or ops and dtypes, whose kernels a test needs."""
    return [marker.args for marker in item.iter_markers("needs_kernels")]


@pytest.fixture(autouse=True)
def fresh_state(monkeypatch):
    """Every test starts like a new process: equal seed, default strictness, and no earlier warning."""
    torch.manual_seed(0)
    monkeypatch.delenv(notice.STRICT_VARIABLE, raising=False)
    notice.set_strict(None)
    notice.forget_warnings()
    recall.forget()
    yield
    notice.set_strict(None)


@pytest.fixture
def qkv():
    """Small valid arguments: q (2, 5, 4, 64), k and v (2, 7, 2, 64), fp16."""
    q = torch.randn(2, 5, 4, 64, dtype=torch.float16)
    k, v = (torch.randn(2, 7, 2, 64, dtype=torch.float16) for _ in range(2))
    return q, k, v


@pytest.fixture
def kernels_on(monkeypatch):
    """``kernels_on(arch)``: from then on host memory is treated like the memory of a GPU of that arch."""

    def choose(arch):
        monkeypatch.setattr(machine._Current, "machine", HostMemory(arch))

    return choose


@pytest.fixture
def asked(monkeypatch, kernels_on):
    """The PyTorch implementation as kernels of an arch. Returns the inputs and options of all launches.

    Like kernels, it leaves rows after the first max_seqlen_q of a sequence unwritten.
    """
    kernels_on(ARCH)
    launches = []

    def enough(inputs, options):
        lengths = inputs.cu_seqlens_q.diff() if inputs.cu_seqlens_q is not None else torch.zeros(1)
        keys = inputs.cu_seqlens_k.diff() if inputs.cu_seqlens_k is not None else torch.zeros(1)
        assert (keys[lengths > options.max_seqlen_q] == 0).all(), "rows that are left out see no key"
        launches.append((inputs, options))
        return options._replace(max_seqlen_q=max(options.max_seqlen_q, int(lengths.max())))

    def launch(inputs, options, state, _plan):
        wide = enough(inputs, options)
        return operators.forward(inputs, wide, state, want_probabilities=False)[:2]

    def backward(call, _path, gradients, delta, _of_mask=None):
        call = call._replace(
            options=enough(call.inputs, call.options), inputs=call.inputs._replace(sink=None)
        )
        for into, x in zip(gradients, operators.backward(call), strict=True):
            into.copy_(x)
        delta.copy_((call.dout.float() * call.out.float()).sum(-1).transpose(-1, -2))

    monkeypatch.setattr(forward_pass, "launch", launch)
    monkeypatch.setattr(backward_pass, "_launch", backward)
    return launches


def kernels_off(launches):
    """Undoes ``asked``, the source of ``launches``."""
    machine.use(machine.Machine())
    launches.clear()


def options_of(given):
    return Options(**{name: given[name] for name in Options._fields if name in given})


def hidden_as_0(call):
    """The gradients, with 0 for hidden keys, for any content of the tensors: as in the kernels.

    The PyTorch implementation multiplies NaN by 0 there.
    """
    found = operators.backward(call)
    if not call.inputs.q.isnan().all():
        return found
    q, k, v, dout = (torch.rand_like(x) for x in (*call.inputs[:3], call.dout))
    numbers = call._replace(
        dout=dout, out=torch.zeros_like(call.out), inputs=call.inputs._replace(q=q, k=k, v=v)
    )
    hidden = ((x == 0).all(-1, keepdim=True) for x in operators.backward(numbers))
    return [gradient.masked_fill(rows, 0) for gradient, rows in zip(found, hidden, strict=True)]


def widen(k_cache, v_cache, k_descale, v_descale, used, table, places, k_out, v_out):
    q = k_out.new_empty((k_out.shape[0], 1, *k_out.shape[2:]))
    inputs = Inputs(q, k_cache, v_cache, seqused_k=used, block_table=table, cache_batch_idx=places)
    for out, codes, descale in ((k_out, k_cache, k_descale), (v_out, v_cache, v_descale)):
        for b, part in enumerate(parts(inputs, Options(1.0, max_seqlen_q=1, max_seqlen_k=1 << 30))):
            found = part.values_of(codes, descale, torch.float32)
            batch = slice(b, b + 1) if len(found) == 1 else slice(None)
            out[batch, : found.shape[1]] = found.to(out.dtype)[:, : out.shape[1]]


@pytest.fixture
def host_operators():
    """The launching operators for host memory, for tests only.

    Returns the arguments of each call of ``fwd`` and ``bwd``, by name.
    """
    forwards, backwards = [], []

    def fwd(*arguments):
        given = dict(zip(FWD_ARGUMENTS, arguments, strict=True))
        forwards.append(given)
        inputs = Inputs(*(given.get(name) for name in Inputs._fields))
        if inputs.attn_mask is not None:  # its rows are padded
            inputs = inputs._replace(attn_mask=inputs.attn_mask[..., : inputs.k.shape[1]])
        out, lse, _ = operators.forward(
            inputs, options_of(given), given["rng_state"], want_probabilities=False
        )
        given["out"].copy_(out)
        given["lse"].copy_(lse)

    def bwd(*arguments):
        given = dict(zip(BWD_ARGUMENTS, arguments, strict=True))
        backwards.append(given)
        inputs = Inputs(*(given.get(name) for name in Inputs._fields))
        if inputs.attn_mask is not None:
            inputs = inputs._replace(attn_mask=inputs.attn_mask[..., : inputs.k.shape[1]])
        read = (given[name] for name in ("dout", "out", "lse"))
        call = BackwardCall(*read, inputs, options_of(given), given["rng_state"])
        for name, gradient in zip(("dq", "dk", "dv"), hidden_as_0(call), strict=True):
            given[name].copy_(gradient)
        given["delta"].copy_((given["dout"].float() * given["out"].float()).sum(-1).transpose(-1, -2))
        if (scores := given["dscores"]) is not None:
            whole = inputs.attn_mask.float().expand(*scores.shape[:3], -1)
            of_all = call._replace(inputs=inputs._replace(attn_mask=whole))
            scores[..., : whole.shape[3]] = operators.backward(of_all, of_mask=True)[3]

    def append(*arguments):
        *tensors, q_out, interleaved, advances = arguments
        before = (*tensors[:8], None, *tensors[8:], interleaved, advances)
        rotated, _ = torch.ops.flash_attn_rocm.pytorch_append(*before)
        if q_out is not None:
            q_out.copy_(rotated)

    library = torch.library.Library("flash_attn_rocm", "IMPL")
    for each in (fwd, bwd, append, widen):
        library.impl(each.__name__, each, "CPU")
    yield forwards, backwards
    library._destroy()


@pytest.fixture
def host_fwd(host_operators):
    """The arguments of ``fwd``."""
    return host_operators[0]


@pytest.fixture
def host_bwd(host_operators):
    """The arguments of ``bwd``."""
    return host_operators[1]
