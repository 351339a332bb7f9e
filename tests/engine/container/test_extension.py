"""Upstream's host part: compiled against a stand-in for PyTorch's ROCm build, linked and packed.

Not tested: the module running. The stand-in's libraries are empty, and there is no GPU.
"""

from dataclasses import replace

import pytest

from tests.conftest import CHECKOUT
from tests.tools.rocm_torch import stand_in
from wheel_builder.base.errors import UpstreamError
from wheel_builder.base.process import run
from wheel_builder.extras.upstream.extension import link_extension, make_host_object, make_host_sources
from wheel_builder.extras.upstream.sdist import fetch_sdist
from wheel_builder.extras.upstream.stages import Workshop, make_object, make_sources
from wheel_builder.extras.upstream.torch import Torch, build_extension_image, fetch_torch
from wheel_builder.images.build import ImageBuild
from wheel_builder.matrix.reading import load_matrix

pytestmark = pytest.mark.full
SMALL = "fmha_bwd_convert_dq_d64_fp16_b64x128_group_o2_psd_ndeterministic"


@pytest.fixture(scope="module")
def log(context):
    return context.log("upstream-extension")


@pytest.fixture(scope="module")
def image(builder, job, context, log):
    return build_extension_image(job, builder, context.store, log=log)


@pytest.fixture(scope="module")
def wheels(image, package, log, tmp_path_factory):
    """A folder with PyTorch's CPU wheel for pip, and one with the stand-in made from it."""
    cpu, rocm = tmp_path_factory.mktemp("cpu"), tmp_path_factory.mktemp("rocm")
    build = ImageBuild("", image.facts["ref"], {}, log, run, python=image.facts["python"]["program"])
    stand_in(
        build.fetch_torch(build.ref, f"torch=={package.torch_headers}", cpu),
        rocm,
        hip="7.2.26015",
        label="rocm7.2",
    )
    return cpu, rocm


@pytest.fixture(scope="module")
def sdist(context, log):
    return fetch_sdist(load_matrix(CHECKOUT / "matrix.yaml").upstream, context.store, log=log)


@pytest.fixture(scope="module")
def shop(builder, job, context, log):
    return Workshop(builder, job.rocm.llvm, context.store, log)


@pytest.fixture(scope="module")
def fetched(image, package, job, context, log):
    def fetch(folder):
        wanted = Torch(package.torch_headers, str(folder))
        return fetch_torch(wanted, job.rocm.version, image, context.store, host=None, log=log)

    return fetch


def test_a_cpu_build_of_pytorch_is_refused(fetched, wheels):
    with pytest.raises(UpstreamError, match=r"found torch-\S+, which is built without ROCm"):
        fetched(wheels[0])


def test_the_host_part_compiles_and_an_extension_without_all_kernels_is_refused(
    fetched, wheels, shop, image, sdist
):
    torch, sources = fetched(wheels[1]), make_sources(sdist, shop)
    inside = replace(shop, image=image)
    host = make_host_sources(sdist, torch, inside)
    assert {"flash_api", "mha_fwd", "mha_bwd"} < set(host.facts["sources"])
    parts = [
        make_host_object(name, "gfx942", host, sources, torch, inside) for name in ("flash_api", "mha_fwd")
    ]
    kernel = make_object(SMALL, "gfx942", sources, shop)
    with pytest.raises(UpstreamError) as failure:
        link_extension("gfx942", [kernel], parts, torch, inside)
    [problem] = failure.value.problems
    assert "functions of kernels are in no object, such as _Z" in problem
