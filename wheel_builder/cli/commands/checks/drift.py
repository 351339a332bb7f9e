"""Changes upstream."""

import argparse

from wheel_builder.cli.command import Command
from wheel_builder.cli.options import BUILD
from wheel_builder.cli.runs import made_until, run_context
from wheel_builder.cli.selected import plan_of
from wheel_builder.matrix.drift import packages_of, refuse_drift, rocm_drift, torch_drift
from wheel_builder.matrix.plan import jobs_to_build


def run(args: argparse.Namespace) -> None:
    plan = plan_of(args)
    images = made_until("image", plan, args, run_context(args))
    if args.dry_run:
        return
    findings = torch_drift(plan.package)
    for job, image in zip(jobs_to_build(plan), images, strict=True):
        findings += rocm_drift(job.rocm, packages_of(image))
    refuse_drift(findings)
    print("no drift: torch and ROCm match matrix.yaml")


COMMAND = Command("drift", "compare matrix.yaml with the current torch and ROCm packages", run, BUILD)
