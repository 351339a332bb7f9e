"""``tune`` with candidates from an index, on Linux. tests/release/windows has it under wine."""

from tests.release.tuned import Place, require_tuned
from wheel_builder.machine_code.static_checks.stage import disassemble_wheel


def test_published_candidates_are_tuned_applied_and_explained(
    release, builder, emulator, verifier, context, tmp_path
):
    texts = disassemble_wheel(release.wheel, builder, store=context.store, log=context.log("disassembly"))
    place = Place("gfx942", verifier.facts["ref"], emulator.path)
    require_tuned(release.wheel, texts.path, place, tmp_path)
