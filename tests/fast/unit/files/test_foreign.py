import pytest

from wheel_builder.files.foreign import is_foreign


@pytest.mark.parametrize(
    "name",
    [
        "libamdhip64.so",
        "libamdhip64.so.7",
        "libamdhip64.so.7.2.4",
        "libamdhip64-1a2b3c4d.so.7.2.4",
        "libtorch.so",
        "libtorch_hip.so",
        "libc10.so",
        "libc10_hip-99.so.1",
        "libhsa-runtime64.so.1",
        "libhipblaslt.so.1",
        "librocblas.so.5",
        "libamd_comgr.so.3",
        "libMIOpen.so.1",
    ],
)
def test_libraries_of_rocm_and_torch_whatever_their_version(name):
    assert is_foreign(name)


@pytest.mark.parametrize(
    "name", ["libflash_attn_rocm.so", "libc.so.6", "libm.so.6", "", "torch.py", "hipfile.txt"]
)
def test_others_are_not(name):
    assert not is_foreign(name)
