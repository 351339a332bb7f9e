"""From matrix and selection to jobs and reasons."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT
from tests.tools.made.matrices import with_examples
from wheel_builder.base.errors import SelectionError
from wheel_builder.matrix.model import (
    PLATFORMS,
    PUBLIC,
    Arch,
    Exclude,
    Matrix,
    OtherArch,
    Package,
    Plan,
    Public,
    Rejection,
    Rocm,
    Selection,
    Upstream,
)
from wheel_builder.matrix.plan import (
    device_rows,
    gpu_rows,
    image_rows,
    jobs_to_build,
    plan,
    rejection_lines,
    runtime_image_rows,
    to_github,
    to_json,
    to_table,
    tuning_image_rows,
    tuning_rows,
    wheel_rows,
)
from wheel_builder.matrix.reading import load_matrix
from wheel_builder.tables.archs import known_archs

PACKAGE = Package("2.10", "2.13.0", "0" * 64, "manylinux_2_28_x86_64", 12)


def rocm(version, archs, **more):
    return Rocm(version, "debian", "debian:sid-slim", "/usr/lib/llvm-22/bin", archs, **more)


MATRIX = Matrix(
    default_rocm="7.2",
    package=PACKAGE,
    archs=(
        Arch("gfx908", "Instinct MI100"),
        Arch("gfx942", "Instinct MI300X"),
        Arch("gfx1100", "Radeon RX 7900 XT"),
    ),
    rocm=(
        # Listed backwards on purpose: a job has the order of ``archs``.
        rocm("7.2", ("gfx1100", "gfx942", "gfx908")),
        rocm("7.0", ("gfx908", "gfx942"), built_in_ci=False, note="never tried"),
        rocm("6.4", ("gfx908", "gfx942")),
        rocm("5.7", ("gfx908",)),
    ),
    exclude=(Exclude("5.7", "no torch"), Exclude("6.4", "miscompiles", "gfx942")),
    upstream=Upstream("2.8.3", "0" * 64, ("gfx90a", "gfx942")),
    public=Public("7.2", ("6.4", "7.2"), (("7.2", ("7.14",)),)),
)


def ids(made):
    return [(job.id, job.archs) for job in made.jobs]


def test_nothing_selected_is_the_default_version_with_all_its_archs():
    made = plan(MATRIX, Selection())
    assert ids(made) == [("rocm7.2", ("gfx908", "gfx942", "gfx1100"))]
    assert made.rejected == ()
    assert made.package is PACKAGE


def test_all_is_what_ci_builds_and_reasons_for_the_rest():
    made = plan(MATRIX, Selection(all_rocm=True))
    every = ("gfx908", "gfx942", "gfx1100")
    assert ids(made) == [("rocm7.2", every), ("rocm6.4", ("gfx908",)), ("public", every)]
    assert made.rejected == (
        Rejection("7.0", "", "not built in our CI: never tried (--rocm 7.0 builds it)"),
        Rejection("6.4", "gfx942", "miscompiles"),
        Rejection("5.7", "", "no torch"),
    )


def test_a_vendor_row_is_built_when_named():
    assert ids(plan(MATRIX, Selection(rocm=("7.0",)))) == [("rocm7.0", ("gfx908", "gfx942"))]


def test_all_and_a_name_is_all_and_that_one():
    made = plan(MATRIX, Selection(rocm=("7.0",), all_rocm=True))
    assert [job.id for job in made.jobs] == ["rocm7.2", "rocm7.0", "rocm6.4", "public"]


def test_the_public_wheel_has_the_code_of_one_version_and_no_label():
    [job] = plan(MATRIX, Selection(rocm=("public",))).jobs
    assert (job.id, job.name, job.label, job.builder) == ("public", "public", "", "rocm7.2")
    assert job.public.fits == ("6.4", "7.2", "7.14")
    assert job.public.oldest == "6.4"
    [own] = plan(MATRIX, Selection(rocm=("7.2",))).jobs
    assert (own.id, own.name, own.label, own.builder) == ("rocm7.2", "7.2", "rocm7.2", "rocm7.2")
    assert (own.rocm, own.archs, own.public) == (job.rocm, job.archs, None)


def test_what_the_public_wheel_lacks_is_told_of_it():
    made = plan(replace(MATRIX, public=Public("6.4", ("6.4",))), Selection(rocm=("public",)))
    assert ids(made) == [("public", ("gfx908",))]
    assert rejection_lines(made) == ["not built:", "  the public wheel gfx942: miscompiles"]


def test_an_excluded_version_stays_excluded_when_named():
    made = plan(MATRIX, Selection(rocm=("5.7",)))
    assert made.jobs == ()
    assert made.rejected == (Rejection("5.7", "", "no torch"),)


def test_order_and_repetition_of_the_command_line_change_nothing():
    one = plan(MATRIX, Selection(rocm=("6.4", "7.2", "6.4"), archs=("gfx1100", "gfx908", "gfx1100")))
    other = plan(MATRIX, Selection(rocm=("7.2", "6.4"), archs=("gfx908", "gfx1100")))
    assert one == other
    assert ids(one) == [("rocm7.2", ("gfx908", "gfx1100")), ("rocm6.4", ("gfx908",))]


def test_an_arch_that_a_version_does_not_list_is_rejected_there_only():
    made = plan(MATRIX, Selection(rocm=("7.2", "6.4"), archs=("gfx1100",)))
    assert ids(made) == [("rocm7.2", ("gfx1100",))]
    assert made.rejected == (Rejection("6.4", "gfx1100", "matrix.yaml does not list it for ROCm 6.4"),)


def test_an_excluded_arch_that_was_not_asked_for_is_no_rejection():
    assert plan(MATRIX, Selection(rocm=("6.4",), archs=("gfx908",))).rejected == ()


def test_unknown_names_are_all_reported_at_once():
    with pytest.raises(SelectionError) as caught:
        plan(MATRIX, Selection(rocm=("7.3", "7.2"), archs=("gfx110", "MI100", "radeon", "gfx908")))
    assert str(caught.value) == (
        "the command line has names missing in matrix.yaml\n"
        "  - --rocm: unknown ROCm version '7.3': did you mean 7.2? known: 7.2, 7.0, 6.4, 5.7, public\n"
        "  - --archs: unknown arch 'gfx110': did you mean gfx1100? known: gfx908, gfx942, gfx1100\n"
        "  - --archs: 'MI100' is the name of a device; its arch is gfx908\n"
        "  - --archs: 'radeon' is the name of a device; its arch is gfx1100\n"
        "  next: `plan --all` lists valid names"
    )


def test_an_arch_that_nothing_is_built_for_has_its_reason():
    matrix = replace(MATRIX, other_archs=(OtherArch("gfx906", "Radeon VII", reason="there is no kernel"),))
    with pytest.raises(SelectionError) as caught:
        plan(matrix, Selection(archs=("gfx906", "Radeon VII")))
    assert "--archs: nothing is built for gfx906: there is no kernel" in str(caught.value)
    assert "--archs: 'Radeon VII' is the name of a device; its arch is gfx906" in str(caught.value)


def test_a_gpu_that_runs_another_ones_code_is_not_built_by_its_own_name():
    archs = (*MATRIX.archs, Arch("gfx1101", "Radeon RX 7800 XT", code_object="gfx1100"))
    matrix = replace(MATRIX, archs=archs)
    assert plan(matrix, Selection()) == plan(MATRIX, Selection())
    with pytest.raises(SelectionError, match="--archs: gfx1101 runs the code of gfx1100; name that"):
        plan(matrix, Selection(archs=("gfx1101",)))


def test_a_name_that_several_archs_share_names_them_all():
    with pytest.raises(
        SelectionError, match="'Instinct' is the name of a device; its arch is gfx908 or gfx942"
    ):
        plan(MATRIX, Selection(archs=("Instinct",)))


def test_nothing_to_build_gives_the_reasons():
    with pytest.raises(SelectionError) as caught:
        jobs_to_build(plan(MATRIX, Selection(rocm=("5.7", "6.4"), archs=("gfx942",))))
    assert str(caught.value) == (
        "nothing to build\n"
        "  - ROCm 6.4 gfx942: miscompiles\n"
        "  - ROCm 5.7: no torch\n"
        "  next: choose others with --rocm and --archs; `plan --all` lists them"
    )


def test_jobs_to_build_are_the_jobs():
    made = plan(MATRIX, Selection())
    assert jobs_to_build(made) is made.jobs


def test_device_rows_are_one_for_each_version_and_arch():
    made = plan(MATRIX, Selection(all_rocm=True, archs=("gfx908", "gfx1100")))
    assert device_rows(made) == [
        {"job": "rocm7.2", "rocm": "7.2", "arch": "gfx908"},
        {"job": "rocm7.2", "rocm": "7.2", "arch": "gfx1100"},
        {"job": "rocm6.4", "rocm": "6.4", "arch": "gfx908"},
    ]


def test_wheel_rows_have_the_archs_as_the_command_line_takes_them():
    rows = wheel_rows(plan(MATRIX, Selection()))
    assert rows == [
        {
            "job": "rocm7.2", "rocm": "7.2", "builder": "rocm7.2", "platform": "linux",
            "archs": "gfx908,gfx942,gfx1100", "runtimes": "7.2",
        }
    ]  # fmt: skip
    row = rows[0]
    again = plan(MATRIX, Selection(rocm=(row["rocm"],), archs=tuple(row["archs"].split(","))))
    assert wheel_rows(again) == rows
    assert {row["runtimes"] for row in wheel_rows(plan(MATRIX, Selection(all_rocm=True)))} == {"7.2,6.4"}


def test_the_public_wheel_takes_image_and_device_code_of_its_version():
    made = plan(MATRIX, Selection(rocm=("public",)))
    assert device_rows(made) == device_rows(plan(MATRIX, Selection()))
    of_runtime = {"job": "rocm6.4", "rocm": "6.4", "image": "6.4-key"}
    assert image_rows(made, KEYS) == [*image_rows(plan(MATRIX, Selection()), KEYS), of_runtime]
    [row] = wheel_rows(made)
    assert (row["job"], row["rocm"], row["builder"]) == ("public", "public", "rocm7.2")
    both = plan(MATRIX, Selection(rocm=("public", "7.2")))
    assert device_rows(both) == device_rows(made)
    assert image_rows(both, KEYS) == image_rows(made, KEYS)
    assert [row["job"] for row in wheel_rows(both)] == ["rocm7.2", "public"]


def test_the_public_wheel_is_loaded_under_every_runtime_that_it_is_for():
    made = plan(MATRIX, Selection(rocm=("public",)))
    assert ids(made) == [("public", ("gfx908", "gfx942", "gfx1100"))]
    assert [job.id for job in made.runtimes] == ["rocm6.4"]
    assert [row["runtimes"] for row in wheel_rows(made)] == ["7.2,6.4"]
    assert [row["job"] for row in image_rows(made, KEYS)] == ["rocm7.2", "rocm6.4"]
    assert {row["job"] for row in device_rows(made)} == {"rocm7.2"}


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(rocm=("7.2",)), ()),
        (Selection(all_rocm=True), ()),  # rocm6.4 has its own job
        (Selection(rocm=("public",), platforms=("windows",)), ()),
        (Selection(rocm=("public",), archs=("gfx942",)), ("rocm6.4",)),  # 6.4 excludes gfx942
    ],
)  # fmt: skip
def test_only_the_public_wheel_for_linux_needs_other_runtimes(selection, expected):
    excluded = replace(MATRIX.exclude[0], rocm="6.4", arch="gfx942")
    made = plan(replace(FOR_WINDOWS, exclude=(excluded,)), selection)
    assert tuple(job.id for job in made.runtimes) == expected


def test_there_is_one_runtime_image_for_a_rocm_version():
    for selected, expected in {
        ("public",): ["public"], ("public", "7.2"): ["rocm7.2"], ("6.4", "public"): ["rocm6.4", "public"],
    }.items():  # fmt: skip
        rows = runtime_image_rows(plan(MATRIX, Selection(rocm=selected)))
        assert [row["job"] for row in rows] == expected


# Keys of all versions' builder images, by job.
KEYS = {f"rocm{rocm.version}": f"{rocm.version}-key" for rocm in MATRIX.rocm}


def test_image_rows_name_the_content_of_the_image():
    assert image_rows(plan(MATRIX, Selection()), KEYS) == [
        {"job": "rocm7.2", "rocm": "7.2", "image": "7.2-key"}
    ]


def test_github_lines_are_one_line_of_json_each():
    made = plan(MATRIX, Selection(all_rocm=True))
    lines = dict(line.split("=", 1) for line in to_github(made, KEYS).splitlines())
    assert {name: json.loads(text) for name, text in lines.items()} == {
        "image": {"include": image_rows(made, KEYS)},
        "device": {"include": device_rows(made)},
        "wheel": {"include": wheel_rows(made)},
        "gpu": {"include": gpu_rows(made)},
        "runtime": {"include": runtime_image_rows(made)},
        "tuning": {"include": tuning_rows(made)},
        "tuning_image": {"include": tuning_image_rows(made, KEYS)},
    }


def test_candidates_are_made_for_the_public_wheels_archs_once():
    every = Selection(all_rocm=True, platforms=PLATFORMS)
    expected = [{"arch": arch, "builder": "rocm7.2"} for arch in ("gfx908", "gfx942", "gfx1100")]
    assert tuning_rows(plan(MATRIX, every)) == expected
    assert tuning_rows(plan(MATRIX, Selection(rocm=(PUBLIC,), archs=("gfx942",)))) == [expected[1]]
    assert tuning_rows(plan(MATRIX, Selection())) == []


def test_candidates_take_the_image_that_compiles_the_public_wheel_and_no_other():
    made = plan(MATRIX, Selection(rocm=(PUBLIC,)))
    of_release = ["7.2", "6.4"]  # it runs the wheel with both
    assert [row["rocm"] for row in image_rows(made, KEYS)] == of_release
    assert tuning_image_rows(made, KEYS) == [{"job": "rocm7.2", "rocm": "7.2", "image": "7.2-key"}]
    assert tuning_image_rows(plan(MATRIX, Selection()), KEYS) == []


def test_github_refuses_an_empty_matrix():
    with pytest.raises(SelectionError, match="nothing to build"):
        to_github(plan(MATRIX, Selection(rocm=("5.7",))), KEYS)


def test_json_has_jobs_with_ids_and_the_rejected():
    value = json.loads(to_json(plan(MATRIX, Selection(all_rocm=True))))
    assert [(job["id"], job["rocm"]["version"], job["archs"]) for job in value["jobs"]] == [
        ("rocm7.2", "7.2", ["gfx908", "gfx942", "gfx1100"]),
        ("rocm6.4", "6.4", ["gfx908"]),
        ("public", "7.2", ["gfx908", "gfx942", "gfx1100"]),
    ]
    assert value["rejected"][2] == {
        "rocm": "5.7", "arch": "", "reason": "no torch", "platform": "linux",
    }  # fmt: skip
    assert value["package"]["torch_floor"] == "2.10"


def test_the_table_has_jobs_and_reasons():
    assert to_table(plan(MATRIX, Selection(all_rocm=True))) == (
        "job      ROCm from  base image       archs\n"
        "rocm7.2  debian     debian:sid-slim  gfx908 gfx942 gfx1100\n"
        "rocm6.4  debian     debian:sid-slim  gfx908\n"
        "public   debian     debian:sid-slim  gfx908 gfx942 gfx1100\n"
        "\n"
        "not built:\n"
        "  ROCm 7.0: not built in our CI: never tried (--rocm 7.0 builds it)\n"
        "  ROCm 6.4 gfx942: miscompiles\n"
        "  ROCm 5.7: no torch"
    )


def test_the_table_without_jobs_says_so():
    text = to_table(plan(MATRIX, Selection(rocm=("5.7",))))
    assert text == "nothing to build\n\nnot built:\n  ROCm 5.7: no torch"


def test_no_reasons_no_heading():
    made = plan(MATRIX, Selection())
    assert rejection_lines(made) == []
    assert "not built" not in to_table(made)


def test_the_plan_does_not_depend_on_the_order_of_excludes():
    backwards = replace(MATRIX, exclude=MATRIX.exclude[::-1])
    assert plan(backwards, Selection(all_rocm=True)) == plan(MATRIX, Selection(all_rocm=True))


def test_the_repositorys_own_plan():
    matrix = load_matrix(Path(__file__).resolve().parents[4] / "matrix.yaml")
    made = plan(matrix, Selection(all_rocm=True))
    archs = tuple(known_archs())
    older = tuple(arch for arch in archs if arch not in ("gfx906", "gfx950", "gfx1010", "gfx1012"))
    assert ids(made) == [("rocm7.2", archs), ("rocm6.4", older), ("public", archs)]
    assert matrix.public.fits == ("6.4", "7.2", "7.0", "7.1", "7.14", "10.0")
    rejected = {(each.rocm, each.arch): each.reason for each in made.rejected}
    assert rejected == {
        ("6.4", "gfx950"): "its HIP runtime lacks support for the GPU; use ROCm 7.2",
        ("6.4", "gfx906"): "no build of PyTorch 2.10 for ROCm 6.4 runs on the GPU; use one for ROCm 7",
        **{
            (
                "6.4",
                arch,
            ): "no build of PyTorch 2.10 for ROCm 6.4 has kernels for the GPU; use one for ROCm 7"
            for arch in ("gfx1010", "gfx1012")
        },
    }


def test_the_example_rows_can_be_copied():
    made = plan(with_examples(), Selection(all_rocm=True))
    rejected = {(each.rocm, each.arch): each.reason for each in made.rejected}
    older = {("6.4", arch) for arch in ("gfx906", "gfx950", "gfx1010", "gfx1012")}
    assert {*rejected} == {("7.1", ""), ("7.0", ""), *older, ("5.7", "")}
    assert "no supported torch" in rejected["5.7", ""]


FOR_WINDOWS = replace(MATRIX, public=replace(MATRIX.public, windows=("gfx1100",)))
ONE_FOR_WINDOWS = "one wheel for Windows is for every ROCm version (--rocm public builds it)"


def test_the_wheel_for_windows_is_the_public_one_with_the_archs_that_rocm_serves_there():
    made = plan(FOR_WINDOWS, Selection(platforms=("windows", "linux")))
    assert ids(made) == [("rocm7.2", ("gfx908", "gfx942", "gfx1100")), ("public-windows", ("gfx1100",))]
    windows = made.jobs[1]
    assert (windows.name, windows.label, windows.builder) == ("public", "", "rocm7.2")
    assert [job.platform_tag(PACKAGE) for job in made.jobs] == [PACKAGE.platform_tag, "win_amd64"]
    assert made.rejected == ()


def test_with_all_it_is_the_last():
    made = plan(FOR_WINDOWS, Selection(all_rocm=True, platforms=("linux", "windows")))
    assert [job.id for job in made.jobs] == ["rocm7.2", "rocm6.4", "public", "public-windows"]


def test_neither_a_gpu_with_linux_nor_an_image_gets_the_wheel_for_windows():
    made = plan(FOR_WINDOWS, Selection(rocm=("public",), platforms=("linux", "windows")))
    assert [(row["job"], row["platform"]) for row in wheel_rows(made)] == [
        ("public", "linux"), ("public-windows", "windows"),
    ]  # fmt: skip
    assert gpu_rows(made) == runtime_image_rows(made) == [{"job": "public"}]
    assert image_rows(made, KEYS) == [
        {"job": "rocm7.2", "rocm": "7.2", "image": "7.2-key"},
        # the wheel for Linux is loaded under its runtime
        {"job": "rocm6.4", "rocm": "6.4", "image": "6.4-key"},
    ]


def test_a_rocm_version_has_no_wheel_for_windows():
    made = plan(FOR_WINDOWS, Selection(rocm=("7.2",), platforms=("windows",)))
    assert made == Plan((), (Rejection("7.2", "", ONE_FOR_WINDOWS, "windows"),), PACKAGE)
    assert rejection_lines(made)[1:] == [f"  ROCm 7.2 for Windows: {ONE_FOR_WINDOWS}"]
    both = plan(FOR_WINDOWS, Selection(rocm=("public", "7.2"), platforms=("windows",)))
    assert ids(both) == [("public-windows", ("gfx1100",))]


def test_an_arch_that_rocm_does_not_serve_on_windows():
    made = plan(FOR_WINDOWS, Selection(archs=("gfx942", "gfx1100"), platforms=("windows",)))
    assert ids(made) == [("public-windows", ("gfx1100",))]
    [line] = rejection_lines(made)[1:]
    assert line.startswith("  the public wheel for Windows gfx942: ROCm does not serve it on Windows")


def test_without_archs_for_windows_there_is_no_wheel_for_it():
    made = plan(MATRIX, Selection(platforms=("windows",)))
    assert made.jobs == ()
    assert rejection_lines(made)[1].startswith("  the public wheel for Windows: ROCm does not serve it")


def test_no_gpu_for_data_centres_is_planned_for_windows():
    matrix = load_matrix(CHECKOUT / "matrix.yaml")
    [job] = plan(matrix, Selection(platforms=("windows",))).jobs
    assert job.archs == matrix.public.windows
    assert not [arch for arch in job.archs if arch.startswith("gfx9")]
