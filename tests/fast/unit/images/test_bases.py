"""Base images: found, pulled or made."""

import json

import pytest

from wheel_builder.base.errors import CommandFailedError, ImageError
from wheel_builder.base.process import Completed
from wheel_builder.images import bases
from wheel_builder.images.bases import Base, archive_uris, ensure_base, host_mirror, made_ref


class FakeEngine:
    """An engine with some images. ``registry`` holds images to pull."""

    def __init__(self, images=(), registry=()):
        self.images, self.registry, self.commands = set(images), set(registry), []

    def __call__(self, argv, *, check=True, **kwargs):
        argv = [str(part) for part in argv]
        self.commands.append(argv)
        if argv[:2] == ["docker", "images"]:
            return Completed(f"id-of-{argv[-1]}\n" if argv[-1] in self.images else "", 0)
        if argv[:3] == ["docker", "image", "inspect"]:
            found = {"Id": argv[-1], "RepoDigests": [], "Config": {"Labels": {}}, "Created": "", "Size": 1}
            return Completed(json.dumps(found), 0)
        if "pull" in argv:
            self.images |= self.registry & {argv[-1]}
            return Completed("", 0 if argv[-1] in self.registry else 1)
        if argv[:2] == ["docker", "import"]:
            self.images.add(argv[-1])
        if argv[0] == "mmdebstrap" and "nosuite" in argv:
            message = "mmdebstrap ended with status 25"
            raise CommandFailedError(message)
        return Completed("", 0)

    def programs(self):
        return [" ".join(c[:2]) if c[0] == "docker" else c[0] for c in self.commands]


def ensure(engine, base, suite, tmp_path):
    return ensure_base(base, suite, log=tmp_path / "log", run=engine)


def test_what_the_engine_has_is_used_without_asking_a_registry(tmp_path):
    engine = FakeEngine(images=["debian:sid-slim"])
    assert ensure(engine, "debian:sid-slim", "sid", tmp_path) == Base(
        "debian:sid-slim", "id-of-debian:sid-slim", "pulled"
    )
    assert not any("pull" in command for command in engine.commands)


def test_a_base_made_before_is_used_again(tmp_path):
    engine = FakeEngine(images=[made_ref("sid")])
    assert ensure(engine, "debian:sid-slim", "sid", tmp_path).origin == "mmdebstrap"
    assert "mmdebstrap" not in engine.programs()


def test_a_registry_comes_before_mmdebstrap(tmp_path):
    engine = FakeEngine(registry=["debian:sid-slim"])
    assert ensure(engine, "debian:sid-slim", "sid", tmp_path).ref == "debian:sid-slim"
    assert "mmdebstrap" not in engine.programs()


def test_without_a_registry_the_suite_is_made_from_a_frozen_archive_too(tmp_path):
    engine = FakeEngine()
    assert ensure(engine, "debian:sid-slim", "sid", tmp_path) == Base(
        "flash-attn-rocm-base:sid", "id-of-flash-attn-rocm-base:sid", "mmdebstrap"
    )
    [made] = [command for command in engine.commands if command[0] == "mmdebstrap"]
    assert '--aptopt=Acquire::Check-Valid-Until "false"' in made
    assert "--variant=minbase" in made


def test_a_vendor_image_cannot_be_made_here(tmp_path):
    with pytest.raises(ImageError, match=r"vendor/rocm:7\.0: no registry has this image.*\n.*docker load"):
        ensure(FakeEngine(), "vendor/rocm:7.0", "", tmp_path)


def test_a_suite_that_cannot_be_made_says_so(tmp_path):
    with pytest.raises(CommandFailedError, match="mmdebstrap ended with status 25"):
        ensure(FakeEngine(), "debian:nosuite", "nosuite", tmp_path)


DEB822 = """\
# the archive
Types: deb
URIs: http://archive.example/debian-security
Suites: bookworm-security
Components: main

Types: deb
# http://snapshot.example/archive
URIs: http://archive.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/a.gpg
"""
ONE_LINE = """\
# deb http://old/debian bookworm main
deb [arch=amd64 signed-by=/k] http://archive.example/debian bookworm main
"""


@pytest.mark.parametrize("text", [DEB822, ONE_LINE])
def test_the_archive_is_found_in_either_format(text):
    assert list(archive_uris(text, "bookworm")) == ["http://archive.example/debian"]


@pytest.mark.parametrize("text", ["", "deb http://a/debian trixie main", "deb http://a/node bookworm nodejs"])
def test_other_archives_are_not_taken_for_it(text):
    assert list(archive_uris(text, "bookworm")) == []


def test_an_archive_on_this_machines_disk_is_not_one_for_containers():
    assert list(archive_uris("deb file:/srv/mirror bookworm main", "bookworm")) == []


def test_only_a_debian_has_a_mirror_of_debian(tmp_path):
    (tmp_path / "sources.list").write_text(ONE_LINE)
    (tmp_path / "sources.list.d").mkdir()
    release = tmp_path / "os-release"
    release.write_text("ID=debian\nVERSION_CODENAME=bookworm\n")
    assert host_mirror(tmp_path, release) == "http://archive.example/debian"
    release.write_text("ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=bookworm\n")
    assert host_mirror(tmp_path, release) == ""


PLANTED = (
    "deb https://user:planted@mirror.example/debian bookworm main\n",
    "deb https://planted@mirror.example/debian bookworm main\n",
    # A URL parser takes this for the beginning of a fragment, apt for a part of the password.
    "deb https://user:plan#ted@mirror.example/debian bookworm main\n",
    "Types: deb\nURIs: https://user:planted@mirror.example/debian\nSuites: bookworm\nComponents: main\n",
)


def planted(tmp_path, monkeypatch, sources):
    """Let this machine be a Debian with these apt sources."""
    (tmp_path / "sources.list").write_text(sources)
    (tmp_path / "os-release").write_text("ID=debian\nVERSION_CODENAME=bookworm\n")
    monkeypatch.setattr(bases, "host_mirror", lambda: host_mirror(tmp_path, tmp_path / "os-release"))


@pytest.mark.parametrize("sources", PLANTED)
def test_a_password_of_the_hosts_archive_gets_into_no_command_and_no_image(sources, tmp_path, monkeypatch):
    planted(tmp_path, monkeypatch, sources)
    engine = FakeEngine()
    with pytest.raises(ImageError) as caught:
        ensure(engine, "debian:sid-slim", "sid", tmp_path)
    said = str(caught.value)
    assert "only from mirror.example/debian with a user or password in the address" in said
    assert "expected an address without\n  next: " in said
    assert "/etc/apt/auth.conf.d" in said
    assert not {"mmdebstrap", "docker import"} & set(engine.programs())
    assert "plan" not in said
    assert "ted@" not in f"{said} {engine.commands}"


@pytest.mark.parametrize("sources", PLANTED)
def test_an_archive_without_a_password_comes_before_one_with(sources, tmp_path, monkeypatch):
    planted(tmp_path, monkeypatch, sources + "\n" + ONE_LINE)
    engine = FakeEngine()
    ensure(engine, "debian:sid-slim", "sid", tmp_path)
    [made] = [command for command in engine.commands if command[0] == "mmdebstrap"]
    assert made[-1] == "http://archive.example/debian"
