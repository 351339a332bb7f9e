"""The description of calls: its errors, and the generated code."""

import re

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.base.errors import CallError
from wheel_builder.tables.call_sources import (
    c_calls,
    cpp_bindings,
    cpp_expected,
    cpp_structs,
    cpp_tensors,
    python_expected,
)
from wheel_builder.tables.calls import FieldType, known_calls, parse_calls

TEXT = """
[expected]
softmax_scale = "a number"
[calls.fwd]
tensors = [
    { name = "q", holds = "rows" },
    { name = "k", holds = "cache" },
    { name = "out", holds = "rows", written = true },
    { name = "slopes", holds = "fp32", optional = true, contiguous = "last" },
    { name = "part", holds = "fp32", written = true, optional = true },
]
values = [
    { name = "window", type = "int64", traced = true },
    { name = "softcap", type = "float" },
    { name = "interleaved", type = "bool" },
]
[calls.plan]
values = [{ name = "arch", type = "text" }, { name = "rows", type = "int64" }]
[makers.attend]
call = "fwd"
makes = ["out"]
between = ["part"]
absent = ["slopes"]
values = [{ name = "splits", type = "int64" }]
[structs.Inner]
from = "const void*"
[structs.Outer]
parts = "Inner[2]"
sum = "float*"
scale = "float"
"""


@pytest.fixture
def described():
    return parse_calls(TEXT)


def test_types_of_fields(described):
    assert described.structs == {
        "Inner": {"from": FieldType("void", pointer=True, const=True)},
        "Outer": {
            "parts": FieldType("Inner", count=2),
            "sum": FieldType("float", pointer=True),
            "scale": FieldType("float"),
        },
    }


def test_structs_in_cpp(described):
    text = cpp_structs(described.structs)
    assert "struct Inner {\n  const void* from;\n};" in text
    assert "struct Outer {\n  Inner parts[2];\n  float* sum;\n  float scale;\n};" in text


def test_the_c_interface(described):
    text = c_calls(described.calls)
    assert (
        "  fa_tensor part;\n  int64_t window;\n  float softcap;\n  int32_t interleaved;\n  void* stream;"
        in text
    )
    assert "typedef struct fa_plan_call {\n  const char* arch;\n  int64_t rows;\n} fa_plan_call;" in text


def test_schemas_say_what_is_written_optional_and_traced(described):
    schemas = re.findall(r'Schema =((?:\n    ".*")+);', cpp_bindings(described.calls, described.makers))
    assert ["".join(re.findall('"(.*)"', schema)) for schema in schemas] == [
        (
            "fwd(Tensor q, Tensor k, Tensor(a!) out, Tensor? slopes, Tensor(b!)? part, SymInt window, "
            "float softcap, bool interleaved) -> ()"
        ),
        "plan(str arch, int rows) -> (str path, int splits, str reason)",
        (
            "attend(Tensor q, Tensor k, SymInt window, float softcap, bool interleaved, int splits) -> "
            "(Tensor out)"
        ),
    ]


def test_bindings_make_the_c_interfaces_call(described):
    text = cpp_bindings(described.calls, described.makers)
    assert "const std::optional<Tensor>& part, std::int64_t window, double softcap, bool inter" in text
    assert '  call.k = describe(k, "k");\n  call.out = describe_written(out, "out");\n' in text
    assert "  call.softcap = static_cast<float>(softcap);\n" in text
    assert "  call.arch = arch.c_str();\n  call.rows = rows;\n  return answered(call);" in text


def test_a_maker_fills_the_same_call_and_returns_what_it_makes(described):
    text = cpp_bindings(described.calls, described.makers).partition("std::tuple<Tensor> attend(")[2]
    assert text.startswith("const Tensor& q, const Tensor& k, std::int64_t window, double softcap, bool i")
    assert [line.strip() for line in text.splitlines()[1:-1]] == [
        "fa_fwd_call call{};",
        'call.q = describe(q, "q");',
        'call.k = describe(k, "k");',
        "call.window = window;",
        "call.softcap = static_cast<float>(softcap);",
        "call.interleaved = interleaved;",
        "call.stream = stream_of(q);",
        "const auto memory = attend_memory(call, q, splits);",
        "run(&fa_fwd, call);",
        "return memory.results;",
    ]


def test_the_checks_get_each_tensor(described):
    rows = re.findall(r"^ +\{(\{.*)\},$", cpp_tensors(described.calls), re.MULTILINE)
    assert rows == [
        '{"q", call.q}, Holds::rows, Contiguous::any, false',
        '{"k", call.k}, Holds::cache, Contiguous::any, false',
        '{"out", call.out}, Holds::rows, Contiguous::any, false',
        '{"slopes", call.slopes}, Holds::fp32, Contiguous::last, true',
        '{"part", call.part}, Holds::fp32, Contiguous::any, true',
    ]


def test_what_is_expected_is_said_alike_in_both_languages(described):
    assert 'kExpectedSoftmaxScale = "a number";' in cpp_expected(described.expected)
    assert 'SOFTMAX_SCALE = "a number"\n' in python_expected(described.expected)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            '"rows" }',
            '"row" }',
            "calls.fwd.tensors: holds is 'row', expected one of rows, codes, cache, fp32",
        ),
        (
            '"bool"',
            '"truth"',
            "calls.fwd.values: type is 'truth', expected one of int64",
        ),
        (
            "optional = true, contiguous",
            "absent = true, contiguous",
            "calls.fwd.tensors: not a field: absent",
        ),
        ('"softcap"', '"q"', "calls.fwd: q comes twice"),
        (
            '"Inner[2]"',
            '"Inner[0]"',
            "structs.Outer: parts is 'Inner[0]', expected int32_t, int64_t",
        ),
        (
            '"Inner[2]"',
            '"Iner[2]"',
            "structs.Outer: parts is 'Iner[2]', expected int32_t, int64_t",
        ),
        ('"float*"', '"float**"', "structs.Outer: sum is 'float**', expected"),
        ('"float*"', '"Inner*"', "structs.Outer: sum is 'Inner*', expected"),
        ('scale = "float"', 'scale = "const float"', "structs.Outer: scale is 'const float', expected"),
        ('scale = "float"', 'scale = "double"', "structs.Outer: scale is 'double', expected"),
        ("[expected]", "[expect]", "calls.toml: not a field: expect"),
        ('call = "fwd"', 'call = "forward"', "makers.attend: call is 'forward', expected one of fwd, plan"),
        ('makes = ["out"]', 'makes = ["q"]', "makers.attend: makes has 'q', expected out, part"),
        ('between = ["part"]', 'between = ["q"]', "makers.attend: between has 'q', expected out, part"),
        ('absent = ["slopes"]', 'absent = ["out"]', "makers.attend: absent has 'out', expected slopes, part"),
    ],
)
def test_what_is_no_description(old, new, problem):
    assert old in TEXT
    with pytest.raises(CallError) as caught:
        parse_calls(TEXT.replace(old, new, 1))
    assert problem in str(caught.value)


def test_structs_are_declared_before_they_are_used():
    inner = '[structs.Inner]\nfrom = "const void*"\n'
    with pytest.raises(CallError, match=r"parts is 'Inner\[2\]'"):
        parse_calls(TEXT.replace(inner, "") + inner)


def test_forward_and_backward_take_their_common_options_alike():
    calls = known_calls().calls
    assert calls["fwd"].values == calls["bwd"].values
    forward = {each.name: each for each in calls["fwd"].tensors if each.optional and not each.written}
    backward = {each.name: each for each in calls["bwd"].tensors if each.optional and not each.written}
    assert backward.items() <= forward.items()


def test_arguments_of_attention_are_explained_where_the_interface_is():
    text = (CHECKOUT / "kernels/host/api/fa_rocm.h").read_text()
    for name, call in known_calls().calls.items():
        if not call.tensors:
            continue  # a plan's names explain themselves
        words = set(re.findall(r"\w+", text[text.index(f"fa_{name}_call: ") :].partition("*/")[0]))
        inherited = set(re.findall(r"\w+", text.partition("fa_bwd_call: ")[0]))
        names = {each.name for each in (*call.tensors, *call.values)}
        assert names <= words | inherited, name


def test_each_optional_tensor_of_a_forward_has_a_line_of_its_own():
    """The formatter had joined three of them to one sentence."""
    text = (CHECKOUT / "kernels/host/api/fa_rocm.h").read_text()
    begun = re.findall(r"^ \*   ((?:\w+, )*\w+)  ", text, re.MULTILINE)
    names = {name for line in begun for name in line.split(", ")}
    assert {each.name for each in known_calls().calls["fwd"].tensors if each.optional} <= names


def test_the_head_dims_of_a_forward_are_those_of_its_kernels():
    text = (CHECKOUT / "kernels/host/api/fa_rocm.h").read_text()
    params = (CHECKOUT / "kernels/device/call/params.hpp").read_text()
    most, wide = (re.search(rf"{name} = (\d+);", params)[1] for name in ("kMaxHeadDim", "kMaxWideHeadDim"))
    assert f"from 1 to {most}, or to {wide}\n * without" in text
