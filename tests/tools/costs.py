"""A pytest plugin: the cost of each folder of tests, as a table at the end and in build/step_costs.json.

A test's cost is the CPU-seconds of its process and of its finished child programs.  Containers' processes
belong to the engine. They share one row: the machine's CPU-seconds less all others.
"""

import os
from collections import defaultdict
from pathlib import Path

import pytest

from wheel_builder.base.machine import cpu_seconds
from wheel_builder.pipeline.step_costs import STEP_COSTS, TESTS, StepCost, to_table, write_section

PROPERTY = "cpu_seconds"
BEGAN = pytest.StashKey[float]()
ELSEWHERE = "containers, and other programs of the machine"


def own_cpu_seconds():
    """CPU-seconds of this process and its finished children."""
    return sum(os.times()[:4])


def folder_of(nodeid):
    """The folder of a test: at most three names of its path."""
    return "/".join(nodeid.partition("::")[0].split("/")[:-1][:3])


class Costs:
    """Collects the reports of all processes. In a run with several, this is the process without tests."""

    def __init__(self, file):
        self.file = file
        self.folders = defaultdict(lambda: [0.0, 0.0])
        self.began_cpu = cpu_seconds()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item):
        item.stash[BEGAN] = own_cpu_seconds()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item, call):
        if call.when == "teardown":
            item.user_properties.append((PROPERTY, own_cpu_seconds() - item.stash[BEGAN]))

    def pytest_runtest_logreport(self, report):
        found = self.folders[folder_of(report.nodeid)]
        found[0] += report.duration
        if report.when == "teardown":
            found[1] += dict(report.user_properties).get(PROPERTY, 0.0)

    def section(self):
        """The costs by folder, and the rest."""
        rows = {name: StepCost(*found) for name, found in sorted(self.folders.items())}
        own = sum(row.cpu_seconds for row in rows.values())
        return rows | {ELSEWHERE: StepCost(0.0, max(0.0, cpu_seconds() - self.began_cpu - own))}

    def pytest_terminal_summary(self, terminalreporter):
        if not self.folders:
            return
        section = self.section()
        terminalreporter.section(
            "what the folders of tests cost; time of a folder is that of its tests in turn"
        )
        terminalreporter.write_line(to_table(section))
        write_section(self.file, TESTS, section)


def register(config, checkout: Path):
    """Collect the costs of this run. In a run with several processes only the first writes them."""
    config.pluginmanager.register(Costs(checkout / "build" / STEP_COSTS), "costs")
