"""Images and wheels made for the container tests."""

import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from wheel_builder.images import docker
from wheel_builder.images.hostenv import CA_FILES, read_host_settings

DATA = Path(__file__).parent / "data"
# The last two are secrets: a password in one of pip's settings, and a variable of the environment.
MARKS = (
    "mark-of-the-host-in-ca",
    "mark-of-the-host.invalid",
    "mark-of-the-host-folder",
    "planted-in-pip",
    "planted-in-environment",
)
SECRETS = MARKS[-2:]


@pytest.fixture(scope="session")
def logs(context):
    return context.log("").parent / "tests"


@pytest.fixture(scope="session")
def system_image(builder):
    """The builder image's first stage: ROCm and a bare Python."""
    return f"{builder.facts['ref']}-system"


@pytest.fixture(scope="session")
def tiny_wheel(tmp_path_factory):
    """A wheel with the product's name. Its doctor reports in one line that PyTorch is missing."""
    folder = tmp_path_factory.mktemp("tiny")
    name, info = "flash_attn_rocm-0.0.1+rocm7.2", "flash_attn_rocm-0.0.1+rocm7.2.dist-info"
    files = {
        "flash_attn_rocm/__init__.py": "",
        "flash_attn_rocm/__main__.py": "print('tiny without a PyTorch'); raise SystemExit(1)\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: flash-attn-rocm\nVersion: 0.0.1+rocm7.2\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    return folder / f"{name}-py3-none-any.whl"


@pytest.fixture
def planted(monkeypatch):
    """A secret in the environment, as a publisher's machine has one."""
    for name in ("TWINE_PASSWORD", "GH_TOKEN", "PIP_PLANTED"):
        monkeypatch.setenv(name, SECRETS[1])


@pytest.fixture(scope="session")
def marked_host(tmp_path_factory):
    """This machine's settings, still working, with a marker in each kind of setting."""
    ca, host, folder, password, _ = MARKS
    here = read_host_settings()
    wheels = tmp_path_factory.mktemp("links") / folder
    wheels.mkdir()
    pip = dict(here.pip)
    # Nothing listens there: pip warns and continues.
    nowhere = f"http://user:{password}@{host}/wheels"
    pip["find-links"] = f"{pip.get('find-links', '')} {wheels} {nowhere}"
    pip["retries"] = "0"
    pip["trusted-host"] = f"{pip.get('trusted-host', '')} {host}"
    bundle = here.ca_bundle or next(Path(f).read_text() for f in CA_FILES if Path(f).is_file())
    return replace(here, pip=tuple(pip.items()), ca_bundle=f"# {ca}\n{bundle}")


@pytest.fixture
def image_of(logs, tmp_path):
    """``image_of(name, tag, **args)`` builds ``data/<name>.Dockerfile``, and removes it after the test."""
    made = []

    def build(name, tag, **args):
        (tmp_path / "context").mkdir(exist_ok=True)
        dockerfile = (DATA / f"{name}.Dockerfile").read_text()
        (tmp_path / "context" / "Dockerfile").write_text(dockerfile)
        docker.build(tmp_path / "context", "Dockerfile", tag, args=args, log=logs / f"{name}.log")
        made.append(tag)
        return tag

    yield build
    for tag in made:
        docker.remove(tag)


def found_in_image(ref, words):
    """The ``words`` found in any layer of an image, deleted files included, or in its history."""
    longest = max(map(len, words))
    found, tail = set(), b""
    with subprocess.Popen(["docker", "save", ref], stdout=subprocess.PIPE) as saved:
        while chunk := saved.stdout.read(1 << 22):
            text = tail + chunk
            found |= {word for word in words if word.encode() in text}
            tail = text[-longest:]
    assert saved.returncode == 0
    history = subprocess.run(
        ["docker", "history", "--no-trunc", ref], check=True, capture_output=True, text=True
    ).stdout
    return found | {word for word in words if word in history}
