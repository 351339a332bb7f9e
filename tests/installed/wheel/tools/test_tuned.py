"""The file of rows that ``tune --apply`` keeps: it is read as what others may have written."""

import json

import pytest
from flash_attn_rocm.library import tuned
from flash_attn_rocm.machine.remembered import Family

GPU = tuned.Gpu("gfx942", "MI300X", 304)
KERNEL, ROW, SHIPPED, DIGEST = "fa_fwd_fp16_d64", "aaaaaaaa", "bbbbbbbb", "c" * 64
WINNER = tuned.Winner(ROW, SHIPPED, 1.1)


@pytest.fixture
def file(monkeypatch, tmp_path):
    """A file of kept rows, as ``tune --apply`` writes it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    yield tuned.keep(GPU, DIGEST, {KERNEL: {"causal": WINNER}})
    tuned.kept.cache_clear()


def words():
    tuned.kept.cache_clear()
    return tuned.words(GPU, KERNEL, SHIPPED, "causal")


def test_what_is_kept_is_read(file):
    assert tuned.kept(GPU) == (DIGEST, {KERNEL: {"causal": WINNER}}, "")
    assert words().startswith(f"; row {ROW} is used instead of {SHIPPED}, kept by ")
    assert tuned.words(GPU, KERNEL, SHIPPED, "short") == ""


def test_without_a_file_there_is_nothing_to_say(file):
    file.unlink()
    assert words() == ""
    assert tuned.kept(GPU) == ("", {}, "")


def winner(**fields):
    return lambda found: found["kernels"][KERNEL]["causal"].update(fields)


WRONG = {
    "a list as row": (winner(row=[]), f"{KERNEL}: causal: row: expected [0-9a-f]{{8}}, got []"),
    "a path as row": (winner(row="../../x"), f"{KERNEL}: causal: row: expected [0-9a-f]{{8}}, got ../../x"),
    "a number as shipped": (winner(shipped=1), f"{KERNEL}: causal: shipped: expected [0-9a-f]{{8}}, got 1"),
    "a gain of 0": (winner(gain=0), f"{KERNEL}: causal: gain: expected a number above 0, got 0"),
    "an endless gain": (winner(gain=10**400), f"{KERNEL}: causal: gain: expected a number above 0, got 10"),
    "a gain of text": (winner(gain="1.1"), f"{KERNEL}: causal: gain: expected a number above 0, got 1.1"),
    "a field more": (winner(more=1), f"{KERNEL}: causal: expected exactly row, shipped, gain, got "),
    "an unknown regime": (
        lambda found: found["kernels"][KERNEL].update(endless=WINNER._asdict()),
        f"{KERNEL}: endless: expected one of decode, ",
    ),
    "no regimes": (lambda found: found["kernels"].update({KERNEL: {}}), f"{KERNEL}: expected 1 to "),
    "a list of kernels": (lambda found: found.update(kernels=[]), "kernels: expected 1 to 128, got []"),
    "another name": (
        lambda found: found["kernels"].update({"../x": found["kernels"][KERNEL]}),
        "a kernel: expected fa_[a-z0-9_]{1,60}, got ../x",
    ),
    "another digest": (lambda found: found.update(candidates=1), "candidates: expected [0-9a-f]{64}, got 1"),
    "another GPU's": (lambda found: found["gpu"].update(name="MI325X"), "gpu: expected {'arch': 'gfx942', "),
    "another format": (lambda found: found.update(format=2), "format: expected 3, got 2"),
    "no fields": (dict.clear, "the file: expected exactly format, gpu, candidates, kernels, got {}"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_file_is_not_used_and_explain_says_why(file, what):
    change, problem = WRONG[what]
    found = json.loads(file.read_text())
    change(found)
    file.write_text(json.dumps(found))
    told = words()
    assert told.startswith(f"; the rows kept by {tuned.COMMAND} are not used: {file}: {problem}")
    assert told.endswith(f"; next: {tuned.COMMAND}")
    assert not tuned.kept(GPU).winners
    assert tuned.rows_of(Family("gfx942", "fp16", 64), GPU) == ()


TEXTS = {
    b"": "Expecting value: line 1 column 1 (char 0)",
    b"[]": "the file: expected exactly format, ",
    b"\xff": "'utf-8' codec can't decode byte 0xff",
    b"[" * 100_000: "expected fewer levels",
    b'{"format": 3, "format": 3}': "a key is there twice",
    b'{"format": NaN}': "expected numbers, got NaN",
    b" " * (tuned.MOST_BYTES + 1): f"expected at most {tuned.MOST_BYTES} bytes",
}


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: str(text[:8]))
def test_a_text_that_is_no_such_file(file, text):
    file.write_bytes(text)
    assert f"{file}: {TEXTS[text]}" in words()


def test_what_cannot_be_opened(file):
    file.unlink()
    file.mkdir()
    assert f"{file}: Is a directory; next: " in words()


def test_new_rows_take_the_place_of_a_wrong_file(file):
    file.write_text("[]")
    tuned.kept.cache_clear()
    tuned.keep(GPU, DIGEST, {KERNEL: {"short": WINNER}})
    assert tuned.kept(GPU).winners == {KERNEL: {"short": WINNER}}
