"""The doctor's words about distributions of candidates, which ``tune`` times on the machine's GPUs."""

from collections.abc import Iterator

from flash_attn_rocm.diagnosis.facts import Facts
from flash_attn_rocm.machine.requirements import Step
from flash_attn_rocm.machine.tuning import install

TUNE = "python -m flash_attn_rocm tune"


def findings(facts: Facts) -> Iterator[tuple[str, str]]:
    """A line for each distribution."""
    for name, version in facts.tuning:
        if not version:
            told = f"the index may have {name}, whose rows {TUNE} times: {install(name)}"
        elif version == facts.package:
            told = f"{name} {version}: {TUNE} times its rows"
        else:
            told = f"{name} {version}, of another wheel: its rows are not used"
        yield "other rows", told


def steps(facts: Facts) -> Iterator[Step]:
    """What to do about those of another version, as after an upgrade."""
    for name, version in facts.tuning:
        if version not in ("", facts.package):
            words = (
                f"{name} {version} does not belong to flash_attn_rocm {facts.package}. Install the one that "
                "does, if the index has it, or remove it"
            )
            yield Step(words, (install(name), f"python -m pip uninstall --yes {name}"))
