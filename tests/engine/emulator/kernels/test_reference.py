"""The emulator's expected values come from plain Python. PyTorch gives the same bound."""

import json

import pytest

from tests.engine.emulator.conftest import DATA
from wheel_builder.images.docker import Mount, run_in

RULE = "kernels/python/flash_attn_rocm/values/tolerances.py"


def test_the_plain_computation_errs_as_torch_does(verifier, context):
    mounts = [
        Mount(DATA / "plain_torch.py", "/plain_torch.py"),
        *(
            Mount(context.checkout / path, f"/src/{path}")
            for path in ("wheel_builder", "kernels/tables", RULE)
        ),
    ]
    env = {"PYTHONPATH": "/src", "PYTHONDONTWRITEBYTECODE": "1"}
    found = json.loads(
        run_in(verifier.facts["ref"], ["python", "/plain_torch.py"], mounts=mounts, env=env).stdout
    )
    assert len(found) == 8
    for case, torch_error, our_error, apart in found:
        assert apart < 1e-14, case
        # torch adds up in float32, ours in float64: single elements are rounded the other way.
        assert our_error == pytest.approx(torch_error, rel=0.02), case
