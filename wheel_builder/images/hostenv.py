"""This machine's settings for containers: extra CA certificates and pip's settings.

Only containers that fetch packages get them, as read-only mounts of ``docker run``. Image builds work offline
on the fetched files, so no setting of this machine can stay in a layer.
"""

import ast
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from wheel_builder.base.process import Runner, run
from wheel_builder.images.docker import Mount, proxy_names

INSIDE = "/run/host-settings"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
LOCATIONS = ("index-url", "extra-index-url", "find-links")
PLAIN = ("no-index", "trusted-host", "timeout", "default-timeout", "retries", "proxy", "prefer-binary")
CA_FILES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
STOCK_CA = Path("/usr/share/ca-certificates")
PEM_BEGIN, PEM_END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


@dataclass(frozen=True)
class HostSettings:
    """pip's settings (key, value as pip prints it) and the CA bundle (PEM text, empty for stock CAs only)."""

    pip: tuple[tuple[str, str], ...] = ()
    ca_bundle: str = ""
    proxies: tuple[str, ...] = ()


@dataclass(frozen=True)
class ContainerSettings:
    """The settings for a container with network, in the form of ``docker.run_in``."""

    mounts: tuple[Mount, ...]
    env: Mapping[str, str]
    network: str


NO_SETTINGS = HostSettings()


def read_host_settings(*, run: Runner = run, environ: Mapping[str, str] = os.environ) -> HostSettings:
    """The settings of this machine, as the pip of this Python sees them."""
    listed = run([sys.executable, "-m", "pip", "config", "list"]).stdout
    pip = parse_pip_config(listed)
    bundle = _ca_file(pip, environ)
    text = bundle.read_text(encoding="utf-8") if bundle else ""
    kept = {key: value for key, value in pip.items() if key in (*LOCATIONS, *PLAIN)}
    proxies = tuple(environ[name] for name in proxy_names(environ) if "no_proxy" not in name.lower())
    return HostSettings(tuple(kept.items()), text if has_own_ca(text, _stock_ca()) else "", proxies)


def parse_pip_config(listed: str) -> dict[str, str]:
    """``pip config list`` as key -> value. The environment overrides ``download``, which overrides
    ``global``."""
    found: dict[str, dict[str, str]] = {"global": {}, "download": {}, ":env:": {}}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        section, _, key = name.partition(".")
        if section in found and key:
            found[section][key] = str(ast.literal_eval(value))
    return {**found["global"], **found["download"], **found[":env:"]}


def certificates(pem: str) -> frozenset[str]:
    """The certificates of a PEM bundle, with white space removed, as bundles differ in it."""
    parts = (part.partition(PEM_END)[0] for part in pem.split(PEM_BEGIN)[1:])
    return frozenset("".join(part.split()) for part in parts)


def has_own_ca(bundle: str, stock: str) -> bool:
    """Whether a bundle has certificates missing from the distribution's own."""
    return not certificates(bundle) <= certificates(stock)


def lay_out(settings: HostSettings, folder: Path) -> ContainerSettings:
    """Write the containers' files to the empty ``folder``. It must outlive the containers."""
    mounts: list[Mount] = [Mount(folder, f"{INSIDE}/conf")] if settings.pip or settings.ca_bundle else []
    env: dict[str, str] = {}
    if settings.pip:
        lines = ["[global]"]
        for key, value in settings.pip:
            values = [_inside(word, key, mounts) for word in value.split()] if key in LOCATIONS else [value]
            lines.append(f"{key} = " + "\n    ".join(values))
        (folder / "pip.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")
        env["PIP_CONFIG_FILE"] = f"{INSIDE}/conf/pip.conf"
    if settings.ca_bundle:
        (folder / "ca.pem").write_text(settings.ca_bundle, encoding="utf-8")
        names = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT")
        env |= dict.fromkeys(names, f"{INSIDE}/conf/ca.pem")
    return ContainerSettings(tuple(mounts), env, network_for(settings))


def network_for(settings: HostSettings) -> str:
    """``host`` when an index or a proxy listens on this machine's loopback only, else ``bridge``."""
    urls = [word for key, value in settings.pip if key in (*LOCATIONS, "proxy") for word in value.split()]
    hosts = {urlsplit(url).hostname for url in (*urls, *settings.proxies)}
    return "host" if hosts & set(LOOPBACK) else "bridge"


def _inside(location: str, key: str, mounts: list[Mount]) -> str:
    """The path of a local folder or ``file://`` index in the container. Other places stay as they are."""
    parts = urlsplit(location)
    if parts.scheme not in ("", "file"):
        return location
    path = Path(unquote(parts.path)).expanduser().absolute()
    # An index links to its files by relative paths, usually to a sibling folder.
    root = path.parent if key != "find-links" and path.parent != Path("/") else path
    target = f"{INSIDE}/files/{len(mounts)}"
    mounts.append(Mount(root, target))
    prefix = "" if key == "find-links" else "file://"
    return f"{prefix}{target}/{path.relative_to(root)}".removesuffix("/.")


def _ca_file(pip: Mapping[str, str], environ: Mapping[str, str]) -> Path | None:
    named = (pip.get("cert", ""), environ.get("SSL_CERT_FILE", ""), *CA_FILES)
    return next((Path(name) for name in named if name and Path(name).is_file()), None)


def _stock_ca() -> str:
    return "\n".join(file.read_text(encoding="utf-8") for file in sorted(STOCK_CA.rglob("*.crt")))
