import zipfile
from pathlib import Path

import pytest

from tests.tools.made.wheels import PLATFORM, VERSION, write_wheel
from wheel_builder.base.errors import CommandFailedError, RepairError
from wheel_builder.base.process import Completed
from wheel_builder.build.repair import main, repair_wheel
from wheel_builder.files.wheels.wheelfile import read_wheel

BUILT = f"flash_attn_rocm-{VERSION}-py3-none-linux_x86_64.whl"
REPAIRED = f"flash_attn_rocm-{VERSION}-py3-none-{PLATFORM}.whl"


class Auditwheel:
    """A fake auditwheel that leaves wheels of the given names, or fails with ``output``."""

    def __init__(self, *names, output=""):
        self.names = names
        self.output = output
        self.argv = []

    def __call__(self, argv, **_):
        self.argv = [str(part) for part in argv]
        if self.output:
            raise CommandFailedError(self.output)
        folder = Path(self.argv[self.argv.index("-w") + 1])
        for name in self.names:
            wheel = write_wheel(folder, name=name)
            with zipfile.ZipFile(wheel, "a") as archive:
                archive.writestr("flash_attn_rocm/", b"")
        return Completed("", 0)


@pytest.fixture
def built(tmp_path):
    return write_wheel(tmp_path, name=BUILT)


def test_leaves_exactly_the_repaired_wheel(built, tmp_path):
    dest = tmp_path / "out"
    assert repair_wheel(built, dest, plat=PLATFORM, run=Auditwheel(REPAIRED)) == dest / REPAIRED
    assert [path.name for path in dest.iterdir()] == [REPAIRED]
    assert built.exists()


def test_entries_for_folders_are_left_out_and_all_else_is_kept(built, tmp_path):
    repaired = repair_wheel(built, tmp_path / "out", plat=PLATFORM, run=Auditwheel(REPAIRED))
    with zipfile.ZipFile(built) as before, zipfile.ZipFile(repaired) as after:
        assert after.testzip() is None
        names = [entry.filename for entry in after.infolist()]
        assert [name for name in names if "RECORD" not in name] == [
            name.replace("linux_x86_64", PLATFORM) for name in before.namelist() if "RECORD" not in name
        ]
        for entry in after.infolist():
            assert entry.date_time == before.infolist()[0].date_time
            assert after.read(entry) == before.read(entry.filename)
    assert read_wheel(repaired, max_mib=1)


def test_asks_for_the_one_tag_and_strips_nothing(built, tmp_path):
    auditwheel = Auditwheel(REPAIRED)
    repair_wheel(built, tmp_path / "out", plat=PLATFORM, run=auditwheel)

    assert auditwheel.argv[:5] == ["auditwheel", "repair", "--plat", PLATFORM, "--only-plat"]
    assert auditwheel.argv[-1] == str(built)
    assert "--strip" not in auditwheel.argv


def test_libraries_of_rocm_and_torch_are_excluded_with_their_versions(built, tmp_path):
    auditwheel = Auditwheel(REPAIRED)
    repair_wheel(built, tmp_path / "out", plat=PLATFORM, run=auditwheel)

    excluded = {b for a, b in zip(auditwheel.argv, auditwheel.argv[1:], strict=False) if a == "--exclude"}
    assert {"libtorch*.so*", "libc10*.so*", "libamdhip64*.so*", "libhsa-*.so*"} <= excluded


@pytest.mark.parametrize(
    ("output", "advice"),
    [
        ("cannot repair because of the presence of too-recent versioned symbols", f"glibc of {PLATFORM}"),
        (
            'ValueError: Cannot repair wheel, because required library "libx.so.1" could not be located',
            "link nothing but",
        ),
        ("something else", "`auditwheel show`"),
    ],
)
def test_auditwheels_refusal_comes_with_its_words_and_advice(built, tmp_path, output, advice):
    with pytest.raises(RepairError) as caught:
        repair_wheel(built, tmp_path / "out", plat=PLATFORM, run=Auditwheel(output=output))
    assert caught.value.message == f"auditwheel cannot give {BUILT} the tag {PLATFORM}\n{output}"
    assert advice in caught.value.advice
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ((), r"made 0 wheels of .* \(none\), expected one"),
        (
            (REPAIRED, REPAIRED.replace("py3", "py2")),
            r"made 2 wheels of .*py2-none.*py3-none.*, expected one",
        ),
        ((BUILT,), f"is tagged linux_x86_64, expected {PLATFORM} alone"),
        (
            (REPAIRED.replace(PLATFORM, f"manylinux_2_17_x86_64.{PLATFORM}"),),
            f"is tagged manylinux_2_17_x86_64, {PLATFORM}, expected",
        ),
        (("odd-name.whl",), "which is no wheel's file name"),
    ],
)
def test_what_auditwheel_leaves_is_checked(built, tmp_path, names, words):
    with pytest.raises(RepairError, match=words):
        repair_wheel(built, tmp_path / "out", plat=PLATFORM, run=Auditwheel(*names))
    assert list((tmp_path / "out").iterdir()) == []


def test_no_wheel_to_repair(tmp_path):
    with pytest.raises(RepairError, match=r"the wheel to repair does not exist\n  next: build it first"):
        repair_wheel(tmp_path / BUILT, tmp_path, plat=PLATFORM, run=Auditwheel(REPAIRED))


def test_the_command_says_where_the_wheel_is(built, tmp_path, capsys):
    argv = [str(built), str(tmp_path / "out"), "--plat", PLATFORM]
    assert main(argv, run=Auditwheel(REPAIRED)) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'out' / REPAIRED}\n"


def test_the_command_fails_in_words_and_with_the_repairs_code(built, tmp_path, capsys):
    argv = [str(built), str(tmp_path / "out"), "--plat", PLATFORM]
    assert main(argv, run=Auditwheel()) == RepairError.exit_code
    assert capsys.readouterr().err.startswith("error: auditwheel made 0 wheels of ")
