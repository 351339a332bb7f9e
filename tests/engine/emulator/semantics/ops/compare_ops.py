"""Vector comparisons. They write masks."""

from tests.engine.emulator.semantics.numbers import exact
from tests.engine.emulator.semantics.numbers.exact import INF
from tests.engine.emulator.semantics.numbers.operands import SHIFT16, U16, U32, U64, D, F, H, signed
from tests.engine.emulator.semantics.table import Op

E16, E32, E64 = exact.F16, exact.F32, exact.F64

ORDERED = {
    "lt": lambda x, y: x < y,
    "eq": lambda x, y: x == y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
}
FLOAT_ONLY = {
    "f": lambda x, y: False,
    "lg": lambda x, y: x < y or x > y,
    "o": lambda x, y: x == x and y == y,
    "u": lambda x, y: x != x or y != y,
    "nge": lambda x, y: not x >= y,
    "nlg": lambda x, y: not (x < y or x > y),
    "ngt": lambda x, y: not x > y,
    "nle": lambda x, y: not x <= y,
    "neq": lambda x, y: x != y,
    "nlt": lambda x, y: not x < y,
    "tru": lambda x, y: True,
}

ALWAYS = ("f", "t", "tru")  # the answer is constant


def compare(kind, test, value, suffix, name):
    def reference(a, b):
        return test(value(a), value(b))

    plain = f"v_cmp_{name}_{suffix}"
    x = f"v_cmpx_{name}_{suffix}"
    until = " rdna4:-" if name in ALWAYS else ""
    yield Op(plain + until, None, (kind, kind), reference, "{m}, {a}, {b}", m="<vcc>")
    yield Op(plain + "_e64" + until, None, (kind, kind), reference, "{m}, {a}, {b}")
    yield Op(f"cdna:{x}", None, (kind, kind), reference, "{m}, {a}, {b}", m="<vcc>", writes_exec=True)
    yield Op(f"rdna:{x}{until}", None, (kind, kind), reference, "{a}, {b}", writes_exec=True)


def comparisons():
    for suffix, kind, f in (("f16", H, E16), ("f32", F, E32), ("f64", D, E64)):
        for name, test in (ORDERED | FLOAT_ONLY).items():
            yield from compare(kind, test, f.value, suffix, name)
    integers = ORDERED | {"ne": lambda x, y: x != y}
    constant = {"f": lambda x, y: False, "t": lambda x, y: True}
    for suffix, kind in (("i16", U16), ("u16", U16), ("i32", U32), ("u32", U32), ("i64", U64), ("u64", U64)):
        value = (lambda x, w=kind.width: signed(x, w)) if suffix[0] == "i" else (lambda x: x)
        # Only gfx9 also has constant comparisons of 16 bits. No compiler emits them.
        for name, test in (integers | (constant if kind.width > 16 else {})).items():
            yield from compare(kind, test, value, suffix, name)
    for suffix, kind, f in (("f16", H, E16), ("f32", F, E32), ("f64", D, E64)):
        mask = SHIFT16 if suffix == "f16" else U32
        yield Op(
            f"v_cmp_class_{suffix}_e64",
            None,
            (kind, mask),
            lambda a, b, f=f: bool(f.classify(a) & b),
            "{m}, {a}, {b}",
        )


EXTRA_COMPARE = [
    Op("v_cmp_lt_f32_e64", None, (F,), lambda a: E32.value(a) < 0, "{m}, {sa}, 0"),
    Op(
        "v_cmp_neq_f32_e64",
        None,
        (F, F),
        lambda a, b: E32.value(E32.abs(a)) != E32.value(E32.neg(b)),
        "{m}, |{a}|, -{b}",
    ),
    Op("rdna:v_cmp_neq_f32", None, (F,), lambda a: E32.value(a) != -INF, "{m}, 0xff800000, {a}", m="<vcc>"),
    Op("rdna3:v_cmp_lt_u16_e64 rdna4:-", None, (U16,), lambda a: a > 5, "{m}, 5, {ah}"),
    Op("rdna3:v_cmp_gt_u16_e64 rdna4:-", None, (U16,), lambda a: a < 5, "{m}, 5, {ah}"),
]


OPS = [*comparisons(), *EXTRA_COMPARE]
