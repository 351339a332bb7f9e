"""Tables and inline values of the documentation, made from the files of facts.

A page has a table between ``<!-- table: gpus -->`` and ``<!-- end: gpus -->``, readable in the repository
too. The site uses a fresh one.
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wheel_builder.base.words import duration
from wheel_builder.build.budget import COSTS, Costs, load_budgets
from wheel_builder.build.shim import SAGEATTENTION
from wheel_builder.extras.perf.calibration import CALIBRATED, parse_calibrated
from wheel_builder.extras.perf.golden import COUNTERS, FIGURES, parse_figures
from wheel_builder.extras.perf.launch.kernels import FOLDER as LAUNCHES
from wheel_builder.extras.perf.launch.kernels import launched
from wheel_builder.extras.perf.launch.table import parse_rows
from wheel_builder.extras.perf.lines import LINES, parse_lines
from wheel_builder.extras.perf.power import PAIRS, read_pairs
from wheel_builder.extras.perf.published import ERRORS, summary
from wheel_builder.extras.site.coded_caches import coded_caches, coded_prefills
from wheel_builder.extras.site.eight_bits import gains
from wheel_builder.extras.site.launches import disputed_table, launch_errors, launch_tables, power_table
from wheel_builder.extras.site.markdown import markdown
from wheel_builder.extras.site.modelled import modelled_tables
from wheel_builder.extras.timings.calibrate import ERRORS as MEASURED_ERRORS
from wheel_builder.extras.timings.calibrate import Error, parse_errors, words_without
from wheel_builder.extras.timings.calibrate import table as errors_table
from wheel_builder.extras.tune.record import SEARCHES, Line, parse_searches
from wheel_builder.extras.upstream.costs import load_costs
from wheel_builder.extras.upstream.why import sections
from wheel_builder.matrix.catalogue import Catalogue, Gpu, catalogue_of
from wheel_builder.matrix.floors import oldest_python
from wheel_builder.matrix.hardware import read_reports
from wheel_builder.matrix.model import PUBLIC, Matrix, Plan, Selection
from wheel_builder.matrix.plan import plan
from wheel_builder.matrix.reading import load_matrix
from wheel_builder.matrix.support_table import Kernels, kernels_of
from wheel_builder.matrix.tuned.tree import signed_tunings
from wheel_builder.tables.kinds import known_kinds

PLACE = re.compile(r"(<!-- table: (\w+) -->)(.*?)(<!-- end: \2 -->)", re.DOTALL)
DROP_IN = Path("wheel_builder/verify/imports.json")


def fill(page: str, made: Mapping[str, str], index: str = "") -> str:
    """The page with every table in its place, and with the address of a public index.

    A table of several lines stands between empty ones.
    """
    filled = PLACE.sub(lambda found: f"{found[1]}{_apart(made[found[2]])}{found[4]}", page)
    return filled.replace("<index>", index.rstrip("/")) if index else filled


def _apart(table: str) -> str:
    return f"\n\n{table.strip()}\n\n" if "\n" in table.strip() else table


def problems(pages: Mapping[str, str], made: Mapping[str, str]) -> list[str]:
    """Places without a table, and tables without a place."""
    wanted = [(name, place) for name, page in pages.items() for _, place, _, _ in PLACE.findall(page)]
    used = {place for _, place in wanted}
    return [
        *(f"{name}: there is no table {place!r}" for name, place in wanted if place not in made),
        *(f"no page has a place for the table {name!r}" for name in made if name not in used),
    ]


def tables(checkout: Path) -> Mapping[str, str]:
    """Every table and value, as Markdown."""
    matrix = load_matrix(checkout / "matrix.yaml")
    planned = plan(matrix, Selection(all_rocm=True))
    catalogue = catalogue_of(matrix, read_reports(checkout))
    costs = load_budgets(checkout / COSTS)
    own = [arch.name for arch in matrix.archs if arch.code == arch.name]
    golden = {arch: checkout / FIGURES / f"{arch}.toml" for arch in own}
    modelled = {arch: parse_figures(file.name, file.read_text("utf-8")) for arch, file in golden.items()}
    launches = {
        arch: parse_rows((checkout / LAUNCHES / f"{arch}.csv").read_text("utf-8"))
        for arch in launched(checkout)
    }
    counters = (checkout / COUNTERS).read_text(encoding="utf-8")
    assembly = (checkout / ERRORS).read_text(encoding="utf-8")
    project = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    imports = json.loads((checkout / DROP_IN).read_text("utf-8"))
    return {
        "python_floor": oldest_python(project),
        "torch_floor": matrix.package.torch_floor,
        "reports": matrix.addresses.reports,
        "gpus": gpus(catalogue),
        "gpu_names": gpu_names(catalogue),
        "gpus_without_kernels": gpus_without_kernels(catalogue),
        "torch_overrides": torch_overrides(catalogue),
        "rocm_versions": rocm_versions(catalogue, planned),
        "kernels": kernels(kernels_of(checkout)),
        **modelled_tables(modelled),
        **launch_tables(launches),
        "launch_errors": launch_errors(parse_calibrated((checkout / CALIBRATED).read_text("utf-8"))),
        "disputed": disputed_table(parse_lines((checkout / LINES).read_text("utf-8"))),
        "power": power_table(read_pairs(checkout / PAIRS), modelled),
        "model_errors": f"```text\n{counters.rstrip()}\n\n{summary(assembly)}\n```",
        "measured_errors": measured_errors(
            parse_errors((checkout / MEASURED_ERRORS).read_text("utf-8")), len(signed_tunings(checkout))
        ),
        "searches": searches(parse_searches((checkout / SEARCHES).read_text("utf-8"))),
        "compile_costs": compile_costs(costs),
        "why_so_long": why_so_long(matrix, checkout, costs),
        "drop_in_libraries": drop_in_libraries(imports),
        "coded_caches": coded_caches(modelled),
        "coded_prefills": coded_prefills(modelled),
        "sageattention_gains": gains(modelled),
        "sageattention_libraries": sageattention_libraries(imports),
    }


def measured_errors(found: Sequence[Error], reports: int) -> str:
    """Errors of the models on users' GPUs, by as many reports."""
    return markdown(errors_table(found)) if found else words_without(reports)


def searches(lines: Sequence[Line]) -> str:
    """Searches for better rows, and their results."""
    rows = [("gfx arch", "kernel", "candidates", "accepted", "gain", "FLOP before and after")]
    for arch, kernel in dict.fromkeys((line.arch, line.kernel) for line in lines):
        own = [line for line in lines if (line.arch, line.kernel) == (arch, kernel)]
        first, figures = own[0], [f"{line.workload} {line.before}" for line in own]
        gain = f"{first.gain:.1%}" if first.changes else ""
        if first.changes:
            figures = [f"{line.workload} {line.before} → {line.after}" for line in own]
        tried = f"{first.candidates}, {first.refused} refused"
        rows.append((arch, kernel, tried, first.changes or "none", gain, ", ".join(figures)))
    return markdown(rows)


def gpus(catalogue: Catalogue) -> str:
    """The GPUs supported by our wheels."""
    rows = [("gfx arch", "GPU", "runs the code of", "run on hardware")]
    for gpu in catalogue.gpus:
        if not gpu.reason:
            runs = [run.words for run in catalogue.hardware if run.arch == gpu.arch]
            rows.append((gpu.arch, _devices(gpu), gpu.code, "; ".join(runs) or "no report"))
    return markdown(rows)


def gpu_names(catalogue: Catalogue) -> str:
    """Chips and processors of the GPUs supported by our wheels."""
    rows = [("gfx arch", "chip, processor, or other name")]
    rows += [(gpu.arch, _other_names(gpu)) for gpu in catalogue.gpus if not gpu.reason and _other_names(gpu)]
    return markdown(rows)


def torch_overrides(catalogue: Catalogue) -> str:
    """GPUs missing from PyTorch's builds, and the setting to run on them."""
    rows = [("gfx arch", "in the shell that runs PyTorch")]
    rows += [(gpu.arch, f"`{gpu.override}`") for gpu in catalogue.gpus if gpu.override]
    return markdown(rows)


def gpus_without_kernels(catalogue: Catalogue) -> str:
    """Known GPUs without kernels."""
    rows = [("gfx arch", "GPU", "also called", "why")]
    rows += [(gpu.arch, _devices(gpu), _other_names(gpu), gpu.reason) for gpu in catalogue.gpus if gpu.reason]
    return markdown(rows)


def _devices(gpu: Gpu) -> str:
    return _brand_once(gpu.devices)


def _other_names(gpu: Gpu) -> str:
    return ", ".join([*gpu.code_names, *([_brand_once(gpu.processors)] if gpu.processors else [])])


def _brand_once(names: Sequence[str]) -> str:
    """The names, joined. The first word stands once: Radeon RX 6800, RX 6900 XT."""
    brands = [name.partition(" ")[0] for name in names]
    return ", ".join(
        name.removeprefix(f"{brand} ") if brand == before else name
        for name, brand, before in zip(names, brands, ["", *brands], strict=False)
    )


def rocm_versions(catalogue: Catalogue, planned: Plan) -> str:
    """ROCm versions with a wheel."""
    rows = [("ROCm", "a wheel is built", "gfx archs in it")]
    every = f"{PUBLIC}: {', '.join(catalogue.public_rocm)}"
    rows += [(every if job.public else job.name, "yes", ", ".join(job.archs)) for job in planned.jobs]
    rows += [(each.version, f"no: {each.reason}", "") for each in catalogue.missing_rocm]
    return markdown(rows)


def kernels(instances: Kernels) -> str:
    """Kinds of kernels with their dtypes, head dims and archs."""
    rows = [("kernels", "dtypes", "head dims", "gfx archs")]
    every = list(dict.fromkeys(arch for each in instances for arch in each.archs))
    for op, archs in dict.fromkeys((each.op, each.archs) for each in instances):
        own = [each for each in instances if (each.op, each.archs) == (op, archs)]
        dims = sorted({each.head_dim for each in own})
        rows.append(
            (
                known_kinds()[op].words,
                ", ".join(dict.fromkeys(each.dtype for each in own)),
                "any" if dims == [0] else ", ".join(map(str, dims)),
                _archs(archs, every),
            )
        )
    return markdown(rows)


def _archs(archs: Sequence[str], every: Sequence[str]) -> str:
    """The archs, or the few missing ones."""
    missing = [arch for arch in every if arch not in archs]
    if len(missing) < len(archs):
        return f"all but {', '.join(missing)}" if missing else "all"
    return ", ".join(archs)


def compile_costs(costs: Mapping[str, Costs]) -> str:
    """Compile time of all kernels, and their machine code."""
    rows = [("gfx arch", "kernels", "CPU time of the compiler", "machine code")]
    for arch, own in costs.items():
        seconds = sum(each.cpu_seconds for each in own.values())
        mib = sum(each.code_bytes for each in own.values()) / 2**20
        rows.append((arch, str(len(own)), duration(seconds), f"{mib:.1f} MiB"))
    return markdown(rows)


def why_so_long(matrix: Matrix, checkout: Path, ours: Mapping[str, Costs]) -> str:
    """The answer of ``why``, without its heading and the advice."""
    answer, beside, *_ = sections(matrix.upstream, load_costs(checkout), ours)
    return "\n\n".join([*answer.sentences, markdown(beside.rows)])


def drop_in_libraries(found: Sequence[Mapping[str, Any]]) -> str:
    """Uses of flash_attn by released libraries, and those missing from the distribution flash-attn."""
    rows = [("library", "takes", "missing")]
    for each in found:
        lacking = [f"`{name}`" for name in each["missing"]]
        lacking += [f"`{name}` (missing upstream too)" for name in each["gone"]]
        library = f"{each['library']} {each['version']}"
        rows.append((library, _by_module(each["uses"]), "; ".join(lacking) or "nothing"))
    return markdown(rows)


def sageattention_libraries(found: Sequence[Mapping[str, Any]]) -> str:
    """Uses of sageattention by released libraries."""
    uses = {f"{each['library']} {each['version']}": _of_sageattention(each["others"]) for each in found}
    return markdown([("library", "takes"), *((name, _by_module(own)) for name, own in uses.items() if own)])


def _of_sageattention(uses: Sequence[str]) -> list[str]:
    return [use for use in uses if use.partition(".")[0] == SAGEATTENTION.modules]


def _by_module(uses: Sequence[str]) -> str:
    """Dotted names, each module once. Prefixes of other names are left out."""
    last = [use for use in uses if not any(other.startswith(f"{use}.") for other in uses)]
    names: dict[str, list[str]] = {}
    for use in last:
        module, _, name = use.rpartition(".")
        names.setdefault(module, []).append(f"`{name}`")
    return "; ".join(f"`{m}`: {', '.join(own)}" if m else ", ".join(own) for m, own in names.items())
