"""The C interface of kernels/host in this process, compiled with a HIP runtime that launches nothing.

Undefined behaviour is compiled into traps.  Structures are read from the interface's headers.
"""

import ctypes
import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

from tests.tools.programs import CHECKOUT, compile_program
from wheel_builder.files.device.packing import base_of, content_of, packed

HOST = CHECKOUT / "kernels/host"
CALLS = CHECKOUT / "kernels/generated/host/fa_calls.h"
HEADERS = (HOST / "types/fa_types.h", HOST / "api/fa_rocm.h", CALLS)
OK, INVALID, UNSUPPORTED, NO_RUNTIME, RUNTIME_ERROR, INTERNAL = range(6)
FP16, BF16, FP32, OTHER, INT32, INT64, BOOL, E4M3FN, E4M3FNUZ, E5M2, INT8 = range(11)
KINDS = {
    "void*": ctypes.c_void_p,
    "fa_dtype": ctypes.c_int,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "char*": ctypes.c_char_p,
}


def structure(name):
    """A structure of the headers. Arrays have FA_MAX_DIMS elements."""
    text = "".join(header.read_text() for header in HEADERS)
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    most = int(re.search(r"#define FA_MAX_DIMS (\d+)", text)[1])
    body = re.search(rf"typedef struct {name} {{([^}}]*)}}", text)[1]
    fields = []
    for kind, names in re.findall(r"(?:const )?([\w]+\*?)\s+([^;]+);", body):
        for each in re.split(r",\s*", names):
            base = KINDS[kind]
            fields.append((each.partition("[")[0], base * most if "[" in each else base))
    return type(name, (ctypes.Structure,), {"_fields_": fields})


FaTensor = structure("fa_tensor")
MOST_DIMS = FaTensor.size.size // 8
KINDS["fa_tensor"] = FaTensor
FwdCall, AppendCall = structure("fa_fwd_call"), structure("fa_append_call")
BwdCall, MlaCall = structure("fa_bwd_call"), structure("fa_mla_call")
WidenCall, Candidate = structure("fa_widen_call"), structure("fa_candidate")
Fp8Call = structure("fa_fwd_fp8_call")
Int8Call = structure("fa_fwd_int8_call")
PlanCall, PlanResult = structure("fa_plan_call"), structure("fa_plan_result")
BwdPlanCall, MlaPlanCall = structure("fa_plan_bwd_call"), structure("fa_plan_mla_call")


def _encoded(value):
    return value.encode() if isinstance(value, str) else value


def _decoded(path):
    """A path's name, or ""."""
    return (path or b"").decode()


class Message(ctypes.Structure):
    _fields_ = (("text", ctypes.c_char * 4096),)


class _Launch(ctypes.Structure):
    _fields_ = (("kernel", ctypes.c_char * 64), ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3))


class _Launches(ctypes.Structure):
    _fields_ = (("count", ctypes.c_uint64), ("newest", _Launch * 4))


class Launch(NamedTuple):
    kernel: str
    grid: tuple
    block: tuple


def generate():
    spec = importlib.util.spec_from_file_location(
        "generate", CHECKOUT / "kernels/build/instances/generate.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["generate"] = module
    spec.loader.exec_module(module)
    return module


# Most sources are compiled as one file. This takes less than half the time, because all read the same
# headers. These sources are compiled alone: their names clash with others'.
ALONE = (
    "append_arguments", "bwd_arguments", "fp8", "int8", "mla_arguments", "relabel", "widen_arguments",
)  # fmt: skip
CLANG = 22


def compile_library(builder_image, zstd, folder):
    """The library with the support table's instances, whose code objects are their names."""
    made = generate()
    instances = made.load_table()
    archs = sorted({arch for each in instances for arch in each.archs})
    codes = {arch: {i.name: i.name.encode() for i in instances if arch in i.archs} for arch in archs}
    kernels = {arch: len(each) for arch, each in codes.items()}
    for arch, each in codes.items():
        base = base_of(arch, kernels)
        content = content_of(base, codes[base]) if base else b""
        (folder / f"{arch}.hipfb").write_bytes(packed(arch, each, content))
    (folder / "registry.inc").write_text(made.registry_inc(instances, archs, CLANG))
    (folder / "fatbin.S").write_text(made.fatbin_s(archs))
    include = [f"-I{folder}", f"-I{Path(__file__).with_name('programs') / 'runtime'}"]
    sources = [*sorted(HOST.glob("*/*.cpp")), Path(__file__).with_name("programs") / "runtime.cpp"]
    alone = [file for file in sources if file.stem in ALONE]
    together = folder / "together.cpp"
    together.write_text("".join(f'#include "{file}"\n' for file in sources if file not in alone))
    flags = ("-shared", "-fPIC", "-fsanitize=undefined", "-fsanitize-trap=undefined")
    given = (*flags, *include, together, *alone, folder / "fatbin.S", *zstd)
    return compile_program(builder_image, folder / "libinterface.so", *given)


class Library:
    """``call`` returns status, words and launches."""

    def __init__(self, path):
        self._library = ctypes.CDLL(str(path))
        self._library.fake_launches.restype = ctypes.POINTER(_Launches)
        self._message = Message()

    def call(self, arguments):
        function = {
            FwdCall: self._library.fa_fwd, AppendCall: self._library.fa_append, BwdCall: self._library.fa_bwd,
            MlaCall: self._library.fa_mla, WidenCall: self._library.fa_widen,
            Fp8Call: self._library.fa_fwd_fp8, Int8Call: self._library.fa_fwd_int8,
        }[type(arguments)]  # fmt: skip
        launches = self._library.fake_launches().contents
        before = launches.count
        status = function(ctypes.byref(arguments), ctypes.byref(self._message))
        made = [launches.newest[i % 4] for i in range(before, launches.count)]
        found = [Launch(each.kernel.decode(), tuple(each.grid), tuple(each.block)) for each in made]
        return status, self._message.text.decode(), found

    def replace(self, *, code, **given):
        """Status and words of ``fa_replace``."""
        held = ctypes.create_string_buffer(code, len(code))
        fields = {name: _encoded(value) for name, value in given.items()}
        candidate = Candidate(code=ctypes.cast(held, ctypes.c_void_p), bytes=len(code), **fields)
        status = self._library.fa_replace(ctypes.byref(candidate), ctypes.byref(self._message))
        return status, self._message.text.decode()

    def plan(self, arguments):
        """Status, path, splits, and the words."""
        result = PlanResult()
        function = {
            PlanCall: self._library.fa_plan, MlaPlanCall: self._library.fa_plan_mla,
            BwdPlanCall: self._library.fa_plan_bwd,
        }[type(arguments)]  # fmt: skip
        status = function(ctypes.byref(arguments), ctypes.byref(result), ctypes.byref(self._message))
        return status, _decoded(result.path), result.splits, self._message.text.decode()

    def plan_bwd(self, **arguments):
        """Status, path, and the words."""
        call = BwdPlanCall(**{name: _encoded(value) for name, value in arguments.items()})
        status, path, splits, words = self.plan(call)
        assert splits == 1
        return status, path, words

    def bwd_sums(self, *, ragged, batch, rows_q, nheads, head_dim):
        """Elements of dq_sums."""
        function = self._library.fa_bwd_sums
        function.argtypes, function.restype = (ctypes.c_int32, *[ctypes.c_int64] * 4), ctypes.c_int64
        return function(ragged, batch, rows_q, nheads, head_dim)

    def limits(self):
        """The limits of kernels, by name."""
        self._library.fa_limits.restype = ctypes.c_char_p
        return json.loads(self._library.fa_limits())

    def instances(self):
        """The registry."""
        self._library.fa_instances.restype = ctypes.c_char_p
        return json.loads(self._library.fa_instances())


def tensor(sizes, dtype=FP16, *, data=1 << 20, strides=None, device=0):
    """As ``fa_tensor``, contiguous unless ``strides`` are given. Without dimensions: a missing tensor."""
    found = FaTensor(data=data, dtype=dtype, device=device, dims=len(sizes))
    step = 1
    for i in reversed(range(len(sizes))):
        found.size[i], found.stride[i] = sizes[i], step if strides is None else strides[i]
        step *= max(sizes[i], 1)
    return found
