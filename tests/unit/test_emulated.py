"""The emulated suite's stage with a fake engine: what it asks for, and what it does not let pass."""

import json
from pathlib import Path

import pytest

from tests.unit.test_stages import IMAGE, FakeEngine, suite
from wheel_builder.errors import VerifyError
from wheel_builder.stages import emulated
from wheel_builder.store import Artifact, Store

KERNELS = ("fa_fwd_bf16_d64", "fa_fwd_fp16_d64")


@pytest.fixture
def checkout(tmp_path):
    root = tmp_path / "checkout"
    for name in ("tests/emulated/test_a.py", "tests/upstream.py", "wheel_builder/standin/control.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


def part(tmp_path, name):
    return Artifact(path=tmp_path / name, manifest={"key": name, "facts": {}}, reused=True)


def record(**changes):
    return {"arch": "gfx942", "launches": dict.fromkeys(KERNELS, 3), "findings": []} | changes


def answering(found):
    def answer(argv, folders):
        if "/out" in folders:
            (Path(folders["/out"]) / "junit.xml").write_text(suite())
            (Path(folders["/out"]) / "record.json").write_text(json.dumps(found))

    return FakeEngine(answer)


def emulate(checkout, tmp_path, engine, *, arch="gfx942", standin="standin", full=False):
    file = tmp_path / "a-1+rocm7.2-py3-none-any.whl"
    file.write_bytes(b"wheel")
    return emulated.run_emulated(
        file, arch, KERNELS, image=IMAGE, standin=part(tmp_path, standin), disassembly=part(tmp_path, "code"),
        checkout=checkout, store=Store(tmp_path / "build"), jobs=2, log=tmp_path / "log", full=full,
        run=engine,
    )  # fmt: skip


def test_the_suite_runs_on_the_arch_with_sanitizers_and_without_network(checkout, tmp_path):
    engine = answering(record())
    shown = emulate(checkout, tmp_path, engine)
    [command] = engine.commands
    assert command[command.index("--network") + 1] == "none"
    assert "FA_STANDIN_ARCH=gfx942:sramecc+:xnack-" in command
    assert "FA_STANDIN_CHECKS=uninit,race,barrier" in command
    assert "PRELOAD=/standin/libamdhip64.so.7" in command
    assert shown.facts == record(tests={"passed": 3})


def test_the_full_suite_is_another_result(checkout, tmp_path):
    engine = answering(record())
    emulate(checkout, tmp_path, engine)
    assert not emulate(checkout, tmp_path, engine, full=True).reused
    assert ["FA_FULL=1" in command for command in engine.commands] == [False, True]


def test_only_what_the_suite_needs_of_the_checkout_is_in_the_container(checkout, tmp_path):
    engine = answering(record())
    emulate(checkout, tmp_path, engine)
    mounted = [part for part in engine.commands[0] if part.startswith("type=bind")]
    from_checkout = sorted(m.split("source=")[1].split(",")[0] for m in mounted if str(checkout) in m)
    assert from_checkout == [
        str(checkout / "tests/emulated"), str(checkout / "tests/upstream.py"),
        str(checkout / "wheel_builder/standin/control.py"),
    ]  # fmt: skip


def test_a_new_emulator_runs_the_suite_again(checkout, tmp_path):
    engine = answering(record())
    emulate(checkout, tmp_path, engine)
    assert emulate(checkout, tmp_path, engine).reused
    assert not emulate(checkout, tmp_path, engine, standin="changed").reused


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"arch": "gfx908"}, "it is about gfx908"),
        ({"launches": {KERNELS[0]: 3}}, f"{KERNELS[1]} never ran"),
        ({"findings": ["lds-race: store"]}, "the emulator found: lds-race: store"),
    ],
)
def test_a_record_that_does_not_vouch_for_the_wheel(checkout, tmp_path, change, words):
    with pytest.raises(
        VerifyError, match="the emulated suite of gfx942 does not vouch for the wheel"
    ) as caught:
        emulate(checkout, tmp_path, answering(record(**change)))
    assert words in str(caught.value)
    assert not list((tmp_path / "build" / "emulated").glob("*/record.json"))
