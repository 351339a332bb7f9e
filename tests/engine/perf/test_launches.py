"""The launch model's accepted figures: speeds of executed workgroups, and launches that follow from them."""

import pytest

from tests.conftest import CHECKOUT
from tests.engine.perf.conftest import MAX_MIB
from wheel_builder.extras.perf.calibration import CALIBRATED, calibrated, schedules_of
from wheel_builder.extras.perf.calibration import to_text as to_csv
from wheel_builder.extras.perf.launch.kernels import FOLDER, SPEEDS, parse_speeds, speeds_text
from wheel_builder.extras.perf.launch.kernels import launched as accepted
from wheel_builder.extras.perf.launch.table import rows_of, to_text
from wheel_builder.extras.perf.power import PAIRS, fitted, read_pairs
from wheel_builder.extras.perf.published import ERRORS, RATES, read_rates
from wheel_builder.extras.perf.run import launched
from wheel_builder.extras.perf.speed import PLAYED

LAUNCHED = accepted(CHECKOUT)
QUICK = {"gfx942": "fa_bwd_dq_fp16_d64", "gfx1201": "fa_fwd_fp16_d64"}


def known():
    return parse_speeds(str(SPEEDS), (CHECKOUT / SPEEDS).read_text())


@pytest.mark.parametrize("arch", QUICK)
def test_speed_of_one_kernel(bench, device_code, arch):
    ((_, kernel),) = launched(device_code(arch) / f"{QUICK[arch]}.hsaco", bench, max_mib=MAX_MIB)
    assert known()[arch][kernel.name] == kernel


@pytest.mark.full
def test_speeds(bench, device_code, golden):
    """Before ``test_launches``, which follows from them."""
    found = {
        arch: [
            kernel
            for file in sorted(device_code(arch).glob("*.hsaco"))
            if PLAYED.match(file.stem)
            for _, kernel in launched(file, bench, max_mib=MAX_MIB)
        ]
        for arch in LAUNCHED
    }
    golden(speeds_text(found), SPEEDS)


@pytest.mark.full
@pytest.mark.parametrize("arch", LAUNCHED)
def test_launches(golden, arch):
    golden(to_text(rows_of(arch, known()[arch])), FOLDER / f"{arch}.csv")


@pytest.mark.full
def test_published_launches(golden):
    """From figures/published/aiter.txt, so after test_amd_assembly.py."""
    lines = {product: fitted(pairs) for product, pairs in read_pairs(CHECKOUT / PAIRS).items()}
    schedules = schedules_of((CHECKOUT / ERRORS).read_text())
    golden(to_csv(calibrated(read_rates(CHECKOUT / RATES), schedules, lines)), CALIBRATED)
