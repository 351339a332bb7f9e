"""A pytest plugin: upstream's test_flash_attn.py of flash_attn 2 or FlashAttention 3, without a GPU.

The file is unmodified.  It asks for tensors on "cuda" and, on import, for facts of a GPU. The plugin makes
tensors on the CPU, and the facts are an A100's.  The PyTorch implementation answers. If FA_FAKE_HIP_ARCH
names an arch, only its kernels on an ISA emulator answer (machine_code/fake_hip). They serve all cases except
dropout, where the file wants the probabilities, and another head dim of v.  A seeded sample of the half a
million cases runs. It is drawn before pytest makes the cases, as making all takes more than a minute.  From
the environment:

    FA_UPSTREAM_CASES   cases of each test, more where they are cheap (SHARES)
    FA_UPSTREAM_SCORES  the largest number of scores of a case (rows * keys, in all calls of the function)
    FA_UPSTREAM_DRAWS   the cheapest of this many drawn cases is taken
    FA_UPSTREAM_SEED    other seeds draw other samples
    FA_UPSTREAM_KEYS    the smallest number of keys of a case, by default 0
"""

import itertools
import os
import random
from types import SimpleNamespace

import flash_attn_rocm
import pytest
import torch
from torch.overrides import TorchFunctionMode

ARCH = os.environ.get("FA_FAKE_HIP_ARCH", "")
CASES = int(os.environ["FA_UPSTREAM_CASES"])
SCORES = int(os.environ["FA_UPSTREAM_SCORES"])
DRAWS = int(os.environ["FA_UPSTREAM_DRAWS"])
SEED = os.environ["FA_UPSTREAM_SEED"]
KEYS = int(os.environ.get("FA_UPSTREAM_KEYS", "0"))
TRIES = 200  # for each case, before the sample stays smaller: a test may have few cases as short as wanted
# Repeated calls of the function in a test, which compares their bits.
CALLS = {"race_condition": 250, "deterministic": 50, "cluster": 100}
# Factors of the number of cases for tests with fast or slow cases.
SHARES = {
    "splitkv": 3, "kvcache": 3, "varlen_output": 2, "causal": 0.6, "deterministic": 0.1,
    "race_condition": 0.02,
}  # fmt: skip
# For these head dims FlashAttention 3's tests also have larger ones of v. No kernel serves them.
WITH_OTHER_V = (64, 192)
A100 = SimpleNamespace(total_memory=80 * 2**30)


class OnCpu(TorchFunctionMode):
    """Makes tensors on the CPU instead of "cuda", and upstream's products ten times faster.

    PyTorch multiplies fp16 and bf16 on a CPU at 2 to 6 GFLOP/s of one core, fp32 at 50.  It sums in fp32
    either way, like GPUs, and rounds the sum once. So the products here use fp32.
    """

    def __torch_function__(self, function, types, args=(), kwargs=None):
        del types
        given = dict(kwargs or {})
        if str(given.get("device", "")).startswith("cuda"):
            given["device"] = "cpu"
        if function is torch.einsum:
            equation, *operands = args
            return function(equation, *(x.float() for x in operands)).to(operands[0].dtype)
        return function(*args, **given)


def pytest_configure():
    torch.set_num_threads(1)  # the tensors are small: threads cost more than they give
    torch.cuda.get_device_capability = lambda _=None: (8, 0)
    torch.cuda.get_device_properties = lambda _=None: A100
    flash_attn_rocm.set_strict(bool(ARCH))
    OnCpu().__enter__()


@pytest.fixture(scope="session")
def runtime():
    """The fake HIP runtime. Its reports list launches. None without an arch."""
    if not ARCH:
        yield None
        return
    from wheel_builder.machine_code.fake_hip.control import FakeHip, kernels_on_host_memory

    found = FakeHip()
    with kernels_on_host_memory(found):
        yield found


@pytest.fixture(autouse=True)
def kernels(runtime, request):
    """The report lists a case's kernels. The emulator must find no fault in them."""
    yield
    if runtime is not None:
        launches = runtime.report().launches
        names = sorted({launch.kernel for launch in launches})
        request.node.user_properties.append(("kernels", " ".join(names)))
        assert [finding for launch in launches for finding in launch.findings] == []


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc):
    """Before pytest's own: a test's lists of values become one list of drawn cases."""
    # Upstream's kernels scale probabilities by a maximum of each tile, and this reverts it. Ours do not.
    metafunc.module.normalize_flash_attn_S = lambda probabilities, *_, **__: probabilities
    test = metafunc.definition
    marks = [mark for mark in test.own_markers if mark.name == "parametrize"]
    if not marks:
        return
    test.own_markers[:] = [mark for mark in test.own_markers if mark not in marks]
    names = [name for mark in marks for name in names_of(mark)]
    cases = drawn(test.name, names, [values_of(mark) for mark in marks])
    metafunc.parametrize(names, cases, ids=["-".join(map(str, case)) for case in cases])


def drawn(test, names, lists):
    """At most ``CASES`` different cases below the limit of scores, in the order of drawing."""
    source = random.Random(f"{SEED} {test}")
    calls, share = (
        next((number for name, number in table.items() if test.endswith(name)), 1)
        for table in (CALLS, SHARES)
    )
    if ARCH and calls > 1:
        return []  # too long for an emulator
    number = max(1, int(CASES * share))
    found = {}
    for _ in range(TRIES * number):
        each = (tuple(itertools.chain(*map(source.choice, lists))) for _ in range(DRAWS))
        case = min(each, key=lambda case: work(named(names, case)))
        values = named(names, case)
        enough = values.get("seqlen_k", KEYS) >= KEYS
        if enough and served(values) and calls * scores(values) <= SCORES:
            found[case] = None
        if len(found) == number:
            break
    return list(found)


def served(case):
    """Whether kernels serve a case, where these are to answer."""
    other_v = "has_qv" in case and case["d"] in WITH_OTHER_V
    return not ARCH or not (case.get("dropout_p") or other_v)


def named(names, case):
    return dict(zip(names, case, strict=True))


def work(case):
    """The approximate time of a case, relative to others of its test.

    Tensors may be long with few scores. Dropout doubles the time for the generator of its mask.
    """
    rows, keys = lengths(case)
    return (rows + keys + rows * keys / 32) * case.get("d", 1) * (2 if case.get("dropout_p") else 1)


def scores(case):
    rows, keys = lengths(case)
    return rows * keys


def lengths(case):
    """Rows and keys. One test has its small lengths in its code."""
    rows = case.get("seqlen", case.get("seqlen_q", 0))
    return rows, case.get("seqlen_k", rows)


def names_of(mark):
    names = mark.args[0]
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)


def values_of(mark):
    """Each entry of the mark's list as a tuple, with a value for each of its names."""
    return [each if len(names_of(mark)) > 1 else (each,) for each in mark.args[1]]
