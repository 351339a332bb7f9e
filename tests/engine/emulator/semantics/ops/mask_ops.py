"""Masks in scalar registers: instructions with EXEC as source and destination."""

from tests.engine.emulator.semantics.snippets import FULL, Code

M32 = 0xFFFFFFFF


def mask_words(wave, mask):
    return {"s40": mask & M32, "s41": mask >> 32} if wave.lanes == 64 else {"s40": mask}


def saveexec(function):
    def reference(wave):
        source = wave["s16"] | wave["s17"] << 32 if wave.lanes == 64 else wave["s16"]
        new = function(source, wave.exec) & FULL[wave.lanes]
        out = mask_words(wave, wave.exec) | {"exec_lo": new & M32, "scc": new != 0}
        return out | ({"exec_hi": new >> 32} if wave.lanes == 64 else {})

    return reference


def wrexec(function):
    def reference(wave):
        source = wave["s16"] | wave["s17"] << 32 if wave.lanes == 64 else wave["s16"]
        new = function(source, wave.exec) & FULL[wave.lanes]
        return mask_words(wave, new) | {"exec_lo": new & M32, "scc": new != 0}

    return reference


SAVE = {
    "and": lambda s, e: s & e,
    "or": lambda s, e: s | e,
    "xor": lambda s, e: s ^ e,
    "nand": lambda s, e: ~(s & e),
    "nor": lambda s, e: ~(s | e),
    "xnor": lambda s, e: ~(s ^ e),
    "andn2/and_not1": lambda s, e: s & ~e,
    "orn2/or_not1": lambda s, e: s | ~e,
    "andn1/and_not0": lambda s, e: ~s & e,
    "orn1/or_not0": lambda s, e: ~s | e,
}


def exec_names(op, suffix):
    """gfx9 has the 64-bit form, wave32 code the 32-bit one. RDNA 3 spells the negations differently."""
    old, new = (op.split("/") * 2)[:2]
    return f"cdna:s_{old}_{suffix}_b64 rdna1:s_{old}_{suffix}_b32 rdna3:s_{new}_{suffix}_b32"


MASKS = [
    *(
        Code(exec_names(op, "saveexec"), "{x} <40>, <16>", saveexec(f), (), ("s16", "s17"))
        for op, f in SAVE.items()
    ),
    Code(
        exec_names("andn1/and_not0", "wrexec"),
        "{x} <40>, <16>",
        wrexec(SAVE["andn1/and_not0"]),
        (),
        ("s16", "s17"),
    ),
    Code(
        exec_names("andn2/and_not1", "wrexec"),
        "{x} <40>, <16>",
        wrexec(SAVE["andn2/and_not1"]),
        (),
        ("s16", "s17"),
    ),
]


OPS = MASKS
