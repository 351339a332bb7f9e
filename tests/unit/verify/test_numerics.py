"""The emulated suite's stage with a fake engine: what it asks for, and what it does not let pass."""

import json
from pathlib import Path

import pytest

from tests.unit.build.test_stages import IMAGE, FakeEngine, suite
from wheel_builder.base.errors import VerifyError
from wheel_builder.base.store import Artifact, Store
from wheel_builder.fake_hip.container import CONTROL, SHARED
from wheel_builder.verify import numerics as emulated
from wheel_builder.verify.coverage import REASONS

KERNELS = ("fa_fwd_bf16_d64", "fa_fwd_fp16_d64")


@pytest.fixture
def checkout(tmp_path):
    root = tmp_path / "checkout"
    for name in ("tests/numerics/test_a.py", REASONS, CONTROL, *SHARED):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("" if name == REASONS else name)
    return root


def part(tmp_path, name):
    return Artifact(path=tmp_path / name, manifest={"key": name, "facts": {}}, reused=True)


def coverage(executed):
    """Of a kernel with 1000 instructions, of which the first did not run."""
    block = {"offset": 0, "behind": [], "code": ["s_mul_i32 s0, s1, s2"] * (1000 - executed)}
    return {"instructions": 1000, "not_executed": [block] if block["code"] else []}


def record(**changes):
    found = {"arch": "gfx942", "launches": dict.fromkeys(KERNELS, 3), "findings": []}
    return found | {"coverage": dict.fromkeys(KERNELS, coverage(1000))} | changes


def answering(found):
    def answer(argv, folders):
        if "/out" in folders:
            (Path(folders["/out"]) / "junit.xml").write_text(suite())
            (Path(folders["/out"]) / "record.json").write_text(json.dumps(found))

    return FakeEngine(answer)


def emulate(checkout, tmp_path, engine, *, arch="gfx942", fake_hip="fake_hip", full=False, **more):
    file = tmp_path / "a-1+rocm7.2-py3-none-any.whl"
    file.write_bytes(b"wheel")
    return emulated.run_emulated(
        file, arch, KERNELS, image=IMAGE,
        fake_hip=part(tmp_path, fake_hip), disassembly=part(tmp_path, "code"),
        checkout=checkout, store=Store(tmp_path / "build"), jobs=2, log=tmp_path / "log", full=full,
        run=engine, **more,
    )  # fmt: skip


def test_the_suite_runs_on_the_arch_with_sanitizers_and_without_network(checkout, tmp_path):
    engine = answering(record())
    shown = emulate(checkout, tmp_path, engine)
    [command] = engine.commands
    assert command[command.index("--network") + 1] == "none"
    assert "FA_FAKE_HIP_ARCH=gfx942:sramecc+:xnack-" in command
    assert "FA_FAKE_HIP_CHECKS=uninit,race,barrier" in command
    assert "FA_FAKE_HIP_TIME_LIMIT=600" in command
    assert "PRELOAD=/fake_hip/libamdhip64.so.7" in command
    covered = {"instructions": 1000, "executed": 1000, "not_executed": []}
    assert shown.facts == record(tests={"passed": 3}, coverage=dict.fromkeys(KERNELS, covered))


def test_the_full_suite_is_another_result(checkout, tmp_path):
    engine = answering(record())
    emulate(checkout, tmp_path, engine)
    assert not emulate(checkout, tmp_path, engine, full=True).reused
    assert ["FA_FULL=1" in command for command in engine.commands] == [False, True]


@pytest.mark.parametrize(("more", "most"), [({}, 20), ({"most_failures": 1}, 1)])
def test_the_suite_stops_after_as_many_failures_as_the_caller_wants(checkout, tmp_path, more, most):
    engine = answering(record())
    emulate(checkout, tmp_path, engine, **more)
    [command] = engine.commands
    assert f"MOST_FAILURES={most}" in command
    assert '--maxfail="$MOST_FAILURES"' in command[-1]


def test_only_what_the_suite_needs_of_the_checkout_is_in_the_container(checkout, tmp_path):
    engine = answering(record())
    emulate(checkout, tmp_path, engine)
    mounted = [part for part in engine.commands[0] if part.startswith("type=bind")]
    from_checkout = sorted(m.split("source=")[1].split(",")[0] for m in mounted if str(checkout) in m)
    assert from_checkout == [
        str(checkout / path)
        for path in (
            "kernels/suite", "tests/numerics", "tests/upstream.py",
            "wheel_builder/emulator/rule.py", "wheel_builder/fake_hip/control.py",
        )
    ]  # fmt: skip


def test_a_new_emulator_runs_the_suite_again(checkout, tmp_path):
    engine = answering(record())
    emulate(checkout, tmp_path, engine)
    assert emulate(checkout, tmp_path, engine).reused
    assert not emulate(checkout, tmp_path, engine, fake_hip="changed").reused


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"arch": "gfx908"}, "it is about gfx908"),
        ({"launches": {KERNELS[0]: 3}}, f"{KERNELS[1]} never ran"),
        ({"findings": ["lds-race: store"]}, "the emulator found: lds-race: store"),
        (
            {"coverage": {KERNELS[0]: coverage(1000), KERNELS[1]: coverage(959)}},
            f"{KERNELS[1]}: 95.9% of its instructions were executed, expected at least 98%",
        ),
        (
            {"coverage": {KERNELS[0]: coverage(989), KERNELS[1]: coverage(1000)}},
            f"has, expected at most 0.5%\n  - {KERNELS[0]}+0x0: 11 of them, from `s_mul_i32 s0, s1, s2` on",
        ),
    ],
)
def test_a_record_that_does_not_vouch_for_the_wheel(checkout, tmp_path, change, words):
    with pytest.raises(
        VerifyError, match="the emulated suite of gfx942 does not vouch for the wheel"
    ) as caught:
        emulate(checkout, tmp_path, answering(record(**change)))
    assert words in str(caught.value)
    assert not list((tmp_path / "build" / "emulated").glob("*/record.json"))
