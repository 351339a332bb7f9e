"""A fully working machine, for tests of the doctor."""

BORROWERS = ("gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036")
ARCHS = ("gfx908", "gfx942", "gfx1030", "gfx1100")
SERVED = {**{arch: arch for arch in ARCHS[:3]}, **dict.fromkeys(BORROWERS, "gfx1030"), "gfx1100": "gfx1100"}


def healthy(facts):
    """The doctor's findings there. ``facts`` is the package's module ``diagnosis.facts``."""
    return facts.Facts(
        system="linux",
        machine="x86_64",
        os_name="Ubuntu 24.04.3 LTS",
        glibc="2.39",
        python="3.12.3",
        package="0.1.0+rocm7.2",
        rocm="7.2",
        problems=(),
        torch=facts.Torch("2.13.0+rocm7.2", rocm="7.2.53210"),
        hip_libraries=("/venv/torch/lib/libamdhip64.so",),
        environment=(),
        driver="amdgpu of Linux 6.8.0",
        kfd=facts.DeviceFile("/dev/kfd", "open", "render", "crw-rw----"),
        renders=(facts.DeviceFile("/dev/dri/renderD128", "open", "render", "crw-rw----"),),
        user_groups=("users", "render"),
        archs=ARCHS,
        gpus=(
            facts.Gpu(
                0,
                "AMD Instinct MI300X",
                "gfx942:sramecc+:xnack-",
                (("fp16 head_dim 64", ""), ("fp16 head_dim 128", "")),
            ),
        ),
        driver_gpus=(facts.Gpu(0, "AMD GPU", "gfx942", node=1),),
        served=tuple(SERVED.items()),
    )
