"""Loading a wheel under a ROCm version's runtime: only the probe's answers are kept."""

import json

import pytest

from tests.fast.unit.images.test_confinement import IMAGE, ROCM
from tests.fast.unit.verify.test_runtime_rules import FOUND
from tests.tools.made.wheels import ARCHS, KERNELS, LIBRARY, fatbin, good_files, library, write_wheel
from wheel_builder.base.errors import VerifyError
from wheel_builder.base.process import Completed
from wheel_builder.base.store import Store
from wheel_builder.matrix.model import Job
from wheel_builder.verify.runtimes import load_wheel

ANSWER = json.dumps({**FOUND, "code_object_version": 255})


class Engine:
    """Stands in for ``process.run``: containers end with this status and these last words."""

    def __init__(self, said, status=0):
        self.said, self.status, self.runs = said, status, 0

    def __call__(self, argv, *, check=True, **kwargs):
        self.runs += argv[:2] == ["docker", "run"]
        return Completed(f"{self.said}\n", self.status)


def load(tmp_path, engine, **changes):
    job, wheel = Job(ROCM, ARCHS), write_wheel(tmp_path, {**good_files(), **changes})
    store = Store(tmp_path / "store")
    return load_wheel(wheel, job, image=IMAGE, store=store, log=tmp_path / "log", run=engine)


@pytest.mark.parametrize(
    ("engine", "found"),
    [
        (Engine("docker: no space left on device", 125), "status 125 and 'docker: no space left on device'"),
        (Engine("", 137), "status 137 and 'nothing'"),
        (Engine("FileNotFoundError: clang", 1), "status 1 and 'FileNotFoundError: clang'"),
        (Engine("Killed"), "status 0 and 'Killed'"),
    ],
)
def test_a_failure_of_the_engine_is_no_verdict_and_a_rerun_asks_again(engine, found, tmp_path):
    with pytest.raises(VerifyError) as caught:
        load(tmp_path, engine)
    assert str(caught.value) == (
        "whether the library loads beside the runtime of ROCm 7.2 was not found out; "
        f"expected the probe's answer, found {found}\n"
        f"  next: nothing was stored: read {tmp_path / 'log'}, put it right (the engine? memory?) "
        "and run the same command again"
    )
    assert load(tmp_path, Engine(ANSWER)).facts["problems"] == []


@pytest.mark.parametrize("said", [ANSWER, json.dumps({"refused": "undefined symbol: hipNew"})])
def test_what_the_probe_answered_is_kept(said, tmp_path):
    engine = Engine(said)
    first, again = load(tmp_path, engine), load(tmp_path, engine)
    assert (first.facts, again.reused, engine.runs) == (again.facts, True, 1)
    refused = ["it cannot be loaded there: undefined symbol: hipNew"]
    assert first.facts["problems"] == ([] if said == ANSWER else refused)


def test_another_library_is_loaded_and_other_words_are_not(tmp_path):
    """After a changed docstring it was loaded under every runtime again."""
    engine = Engine(ANSWER)
    load(tmp_path, engine)
    assert load(tmp_path, engine, **{"flash_attn_rocm/__init__.py": b'"""Words."""\nVALUE = 42\n'}).reused
    fewer = library(sections={".hip_fatbin": fatbin(kernels=KERNELS[:1])})
    assert not load(tmp_path, engine, **{LIBRARY: fewer}).reused
    assert engine.runs == 2
