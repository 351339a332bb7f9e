"""The GPUs and ROCm versions of an index in tests."""

from wheel_builder.matrix.catalogue import Catalogue, Gpu, MissingRocm, Torch

CATALOGUE = Catalogue(
    gpus=(
        Gpu("gfx908", ("Instinct MI100",)),
        Gpu("gfx1100", ("Radeon RX 7900 XTX", "Radeon PRO W7900")),
        Gpu("gfx906", ("Radeon VII",), "there is no kernel for it"),
    ),
    missing_rocm=(MissingRocm("5.7", "no torch runs on it"),),
    torch=Torch("2.10", "2.13.0"),
)
