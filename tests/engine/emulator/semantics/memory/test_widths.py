"""Every memory instruction moves as many bytes as its name says, or stops the run as not implemented."""

import functools
import re

import pytest

from tests.engine.emulator.semantics import cases
from tests.engine.emulator.semantics.machine import ARCHS, FEATURES, SnippetMachine
from tests.engine.emulator.semantics.memory import widths
from wheel_builder.images.docker import Mount, caller, run_in

# Prints the accepted lines with their names on this arch. Errors name the other lines.
ACCEPT = "{llvm}/llvm-mc -triple=amdgcn-amd-amdhsa -mcpu={arch} {features} /in.s >/out/{arch}.s 2>/out/{arch}"


@pytest.mark.parametrize(
    ("mnemonic", "size"),
    [
        ("global_load_ubyte_d16_hi", 1),
        ("buffer_store_short", 2),
        ("global_load_d16_hi_b16", 2),
        ("flat_load_dword", 4),
        ("buffer_load_dwordx4", 16),
        ("s_buffer_load_b512", 64),
        ("ds_read2st64_b64", 16),
        ("ds_store_2addr_b32", 8),
        ("ds_read_u8_d16", 1),
        ("ds_max_rtn_i32", 4),
        ("global_atomic_umax", 4),
        ("buffer_atomic_cmpswap_x2", 8),
        ("global_atomic_pk_add_bf16", 4),
        ("flat_atomic_add_f64", 8),
    ],
)
def test_the_width_of_a_name(mnemonic, size):
    assert widths.width(mnemonic) == size


def test_a_name_without_width_is_an_error():
    with pytest.raises(ValueError, match="s_dcache_inv: no width in this name"):
        widths.width("s_dcache_inv")


@pytest.fixture(scope="session")
def registered(core):
    """The emulator's memory instructions whose data stays in its lane."""
    classes = core.mnemonics()
    return sorted(
        name
        for name, kind in classes.items()
        if kind in widths.MEMORY_CLASSES and name not in widths.ACROSS_LANES
    )


@pytest.fixture(scope="session")
def accepted(registered, builder, job, context, tmp_path_factory):
    """``accepted(arch)``: the forms that the arch has under this name."""
    forms = [form for name in registered for form in widths.forms(name)]
    text = "".join(f"{form.text}\n" for form in forms)
    source = tmp_path_factory.mktemp("forms") / "in.s"
    source.write_text(text)
    lines = [ACCEPT.format(llvm=job.rocm.llvm, arch=arch, features=FEATURES[arch]) for arch in ARCHS]
    script = "\n".join(f"{line} || true" for line in lines)

    def make(out):
        mounts = [Mount(source, "/in.s"), Mount(out, "/out", writable=True)]
        run_in(builder.facts["ref"], ["sh", "-c", script], mounts=mounts, user=caller())
        return {}

    inputs = {"image": builder.facts["image_id"], "text": text, "how": script}
    made = context.store.get_or_make("emulator-forms", inputs, make).path

    @functools.cache
    def of(arch):
        wrong = re.findall(r"^/in\.s:(\d+):\d+: error", (made / arch).read_text(), re.MULTILINE)
        rejected = {int(line) for line in wrong}
        taken = [form for number, form in enumerate(forms, 1) if number not in rejected]
        names = re.findall(r"^\t([a-z]\w+)", (made / f"{arch}.s").read_text(), re.MULTILINE)
        return [form for form, name in zip(taken, names, strict=True) if name == form.mnemonic]

    return of


@pytest.mark.parametrize("arch", ARCHS)
def test_each_memory_instruction_moves_the_width_of_its_name(arch, accepted, assembled):
    forms, wrong = accepted(arch), []
    machine = SnippetMachine(arch, [widths.snippet(form, arch) for form in forms], assembled)
    for form in forms:
        runs = widths.execute(form, machine)
        if isinstance(runs, str):
            loud = form.kind == "to lds" and "is not implemented" in runs
            wrong += [] if loud else [f"{form.text}: {runs}"]
        else:
            wrong += [f"{form.text}: {problem}" for problem in widths.problems(form, runs)]
    assert not wrong, "\n".join(wrong)


def test_every_memory_instruction_of_the_emulator_is_one_of_an_arch(registered, accepted):
    executed = {form.mnemonic for arch in ARCHS for form in accepted(arch)}
    assert sorted(set(registered) - executed) == []


def test_instructions_across_lanes_have_lines_of_their_own():
    assert set().union(*(cases.tested(arch) for arch in ARCHS)) >= widths.ACROSS_LANES
