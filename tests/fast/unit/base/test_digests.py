"""Files handed from job to job: additions, replacements and omissions on the way are found."""

import json
import random

import pytest

from wheel_builder.base.digests import digests_of, output_line, read_digests, require_digests
from wheel_builder.base.errors import PublishError
from wheel_builder.cli.main import main

SEED = 20261128


@pytest.fixture
def files(tmp_path):
    names = ["a.whl", "a.whl.verification.json", "a.whl.provenance.json", "b.whl"]
    for name in names:
        (tmp_path / name).write_text(name)
    return [tmp_path / name for name in names]


def outputs(files):
    """toJSON of the outputs of a job whose rows describe the files of a and b."""
    rows = {"public": files[:3], "rocm7.2": files[3:]}
    lines = (output_line(name, digests_of(row)).partition("=") for name, row in rows.items())
    return json.dumps({name: value for name, _, value in lines} | {"rocm6_4": ""}, indent=2)


def test_what_was_told_is_what_arrives(files):
    told = read_digests([outputs(files), "{}"])
    assert told == digests_of(files)
    require_digests(files, told)
    require_digests(files[:1], told, some=True)
    assert output_line("rocm7.2", {"b": "0"}) == 'rocm7_2={"b":"0"}'


def added(files, rng):
    new = files[0].with_name(rng.choice(["c.whl", "a.whl.sigstore.json", "flash_attn-9-py3-none-any.whl"]))
    new.write_text("evil")
    return [*files, new], "no job told of this file"


def replaced(files, rng):
    rng.choice(files).write_text("evil")
    return files, "and the job that made it told"


def left_out(files, rng):
    gone = rng.choice(files)
    return [file for file in files if file != gone], "it did not arrive"


def linked(files, rng):
    file = rng.choice(files)
    file.rename(aside := file.with_name("aside"))
    file.symlink_to(aside)
    return files, "it is not a plain file"


def folder(files, rng):
    new = files[0].with_name(f"folder{rng.randrange(9)}")
    new.mkdir()
    return [*files, new], "it is not a plain file"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("attack", [added, replaced, left_out, linked, folder])
def test_what_another_job_did_to_them_is_refused(attack, seed, files):
    """The artefact verified-evil from a machine of the same run was once published."""
    told = read_digests([outputs(files)])
    arrived, words = attack(files, random.Random(f"{SEED} {seed}"))
    with pytest.raises(PublishError, match="the files differ from those handed over") as caught:
        require_digests(arrived, told)
    assert any(words in problem for problem in caught.value.problems)


def test_nothing_told_is_no_agreement(files):
    for some in (False, True):
        with pytest.raises(PublishError, match="no job told of any file"):
            require_digests(files, {}, some=some)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["[]"], "expected an object"),
        (["{"], "Expecting property name"),
        (['{"a": 1}'], "has no text for a sha256"),
        (['{"a": "0"}', '{"a": "0"}'], "a is told twice"),
    ],
)
def test_what_cannot_be_read_is_refused(texts, words):
    with pytest.raises(ValueError, match=words):
        read_digests(texts)


def test_the_command(files, capsys):
    names = [str(file) for file in files]
    assert main(["digests", *names, "--output", "rocm7.2"]) == 0
    line = capsys.readouterr().out.strip()
    assert line == output_line("rocm7.2", digests_of(files))
    assert main(["digests", *names, "--told", line.partition("=")[2]]) == 0
    assert main(["digests", *names[:1], "--told", line.partition("=")[2]]) == PublishError.exit_code
    assert main(["digests", *names[:1], "--some", "--told", line.partition("=")[2]]) == 0
    assert main(["digests", *names, "--told", "evil"]) == PublishError.exit_code
    assert "the given digests cannot be read" in capsys.readouterr().err
