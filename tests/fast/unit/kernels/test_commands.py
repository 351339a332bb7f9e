"""The package knows the commands of README and docs/, with their options."""

import pytest

from tests.fast.unit.kernels.test_screens import package  # noqa: F401 - a fixture
from tests.tools.commands import shown

COMMANDS = [line.split()[3:] for line in shown() if line.startswith("python -m flash_attn_rocm ")]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_package_takes_the_options_of_a_command(package, words, monkeypatch):  # noqa: F811
    main = package("__main__")
    for name in ("_run_doctor", "_run_selftest", "_run_bench", "_run_tune"):
        monkeypatch.setattr(main, name, lambda given: 0)
    assert main.main(words) == 0
    with pytest.raises(SystemExit):
        main.main([*words, "--not-there"])
