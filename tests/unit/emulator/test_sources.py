"""Code objects out of files; a real one is in tests/emulator."""

import pytest

from wheel_builder.emulator.sources import code_object
from wheel_builder.errors import EmulatorError


def test_what_holds_no_device_code_is_refused_in_words(tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("x")
    with pytest.raises(EmulatorError) as caught:
        code_object(file, "fa_fwd_fp16_d64", "gfx942")
    assert str(caught.value) == (
        "notes.txt is neither a wheel, nor an offload bundle, nor a code object\n"
        "  next: name a .whl, a .hipfb or a .hsaco file"
    )
