"""The host's settings for containers."""

import sys
from pathlib import Path

import pytest

from wheel_builder.base.process import Completed
from wheel_builder.images import hostenv
from wheel_builder.images.hostenv import (
    NO_SETTINGS,
    HostSettings,
    has_own_ca,
    lay_out,
    network_for,
    parse_pip_config,
)

ONE = "-----BEGIN CERTIFICATE-----\nAAAA\nBBBB\n-----END CERTIFICATE-----\n"
ONE_OTHERWISE = "# a comment\n-----BEGIN CERTIFICATE-----\r\nAAAABBBB\r\n-----END CERTIFICATE-----"
TWO = "-----BEGIN CERTIFICATE-----\nCCCC\n-----END CERTIFICATE-----\n"


def test_the_environment_beats_the_command_which_beats_global():
    listed = (
        ":env:.timeout='9'\ndownload.timeout='8'\nglobal.timeout='7'\nglobal.index-url='https://a/simple'\n"
        "install.index-url='https://b/simple'\ndownload.retries='3'\n"
    )
    assert parse_pip_config(listed) == {"timeout": "9", "index-url": "https://a/simple", "retries": "3"}


def test_values_of_several_lines_and_quotes_are_understood():
    listed = 'global.extra-index-url="\\nhttps://a/simple\\nhttps://b/it\'s"\n'
    assert parse_pip_config(listed)["extra-index-url"].split() == ["https://a/simple", "https://b/it's"]


def test_only_certificates_that_the_distribution_lacks_count():
    assert not has_own_ca(ONE_OTHERWISE, ONE + TWO)
    assert has_own_ca(ONE + TWO, ONE)
    assert not has_own_ca("", "")


def test_local_folders_and_file_indexes_are_mounted_read_only_and_renamed(tmp_path):
    pip = (
        ("find-links", "/srv/wheels https://mirror/wheels"),
        ("extra-index-url", "file:///srv/my%20pypi/simple https://mirror/simple"),
        ("timeout", "180"),
    )
    inside = lay_out(HostSettings(pip), tmp_path)
    assert {(str(m.source), m.target) for m in inside.mounts} == {
        (str(tmp_path), "/run/host-settings/conf"),
        ("/srv/wheels", "/run/host-settings/files/1"),
        ("/srv/my pypi", "/run/host-settings/files/2"),
    }
    assert not any(mount.writable for mount in inside.mounts)
    assert (tmp_path / "pip.conf").read_text() == (
        "[global]\n"
        "find-links = /run/host-settings/files/1\n    https://mirror/wheels\n"
        "extra-index-url = file:///run/host-settings/files/2/simple\n    https://mirror/simple\n"
        "timeout = 180\n"
    )
    assert inside.env == {"PIP_CONFIG_FILE": "/run/host-settings/conf/pip.conf"}


def test_an_index_right_below_the_root_does_not_mount_the_whole_machine(tmp_path):
    inside = lay_out(HostSettings((("index-url", "file:///simple"),)), tmp_path)
    assert [str(m.source) for m in inside.mounts] == [str(tmp_path), "/simple"]
    assert "index-url = file:///run/host-settings/files/1\n" in (tmp_path / "pip.conf").read_text()


def test_the_ca_bundle_is_given_to_everything_that_fetches(tmp_path):
    inside = lay_out(HostSettings(ca_bundle=TWO), tmp_path)
    assert (tmp_path / "ca.pem").read_text() == TWO
    assert inside.env == dict.fromkeys(
        ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT"), "/run/host-settings/conf/ca.pem"
    )


def test_settings_turned_off_give_nothing(tmp_path):
    inside = lay_out(NO_SETTINGS, tmp_path)
    assert (inside.mounts, dict(inside.env), inside.network) == ((), {}, "bridge")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "network"),
    [
        (HostSettings((("index-url", "http://localhost:3141/simple"),)), "host"),
        (HostSettings((("extra-index-url", "https://a/simple http://[::1]:80/simple"),)), "host"),
        (HostSettings(proxies=("http://127.0.0.1:3128",)), "host"),
        (HostSettings((("index-url", "https://mirror/simple"), ("find-links", "/srv"))), "bridge"),
    ],
)
def test_only_what_listens_on_loopback_needs_the_hosts_network(settings, network):
    assert network_for(settings) == network


class FakePip:
    def __init__(self, listed):
        self.listed = listed

    def __call__(self, argv, **kwargs):
        assert argv == [sys.executable, "-m", "pip", "config", "list"]
        return Completed(self.listed, 0)


def read(listed, environ, monkeypatch, stock):
    monkeypatch.setattr(hostenv, "STOCK_CA", stock)
    monkeypatch.setattr(hostenv, "CA_FILES", ())
    return hostenv.read_host_settings(run=FakePip(listed), environ=environ)


@pytest.fixture
def stock(tmp_path):
    folder = tmp_path / "stock"
    folder.mkdir()
    (folder / "one.crt").write_text(ONE)
    return folder


def test_this_machines_settings_are_read_once_at_the_edge(tmp_path, monkeypatch, stock):
    bundle = tmp_path / "bundle.pem"
    bundle.write_text(ONE + TWO)
    listed = f"global.cert={str(bundle)!r}\nglobal.index-url='https://a/simple'\nglobal.user='true'\n"
    environ = {"https_proxy": "http://proxy:1", "no_proxy": "localhost"}
    settings = read(listed, environ, monkeypatch, stock)
    assert settings == HostSettings((("index-url", "https://a/simple"),), ONE + TWO, ("http://proxy:1",))


def test_a_bundle_with_stock_certificates_only_stays_here(tmp_path, monkeypatch, stock):
    bundle = tmp_path / "bundle.pem"
    bundle.write_text(ONE_OTHERWISE)
    assert read("", {"SSL_CERT_FILE": str(bundle)}, monkeypatch, stock) == NO_SETTINGS


def test_a_bundle_that_is_named_but_missing_is_not_read(monkeypatch, stock):
    assert read("", {"SSL_CERT_FILE": str(Path("/nowhere.pem"))}, monkeypatch, stock) == NO_SETTINGS
