"""Make pytest in a child measure what its request names, and write none of its parent's files."""

from __future__ import annotations

import gc
import os
import sys

import pytest

from pytest_bandwidth.evidence.processes.requests import request_of

# These choose tests by what failed before, or write what only the parent may write.
_NOT_IN_A_FRESH_PROCESS = ("lfplugin", "nfplugin", "stepwiseplugin")

_HYPOTHESIS = "hypothesispytest"

# Where pytest and plugins write, by the name of the option's value: those files are the parent's.
_OUTPUTS = (
    "xmlpath",  # --junitxml
    "report_log",  # pytest-reportlog
    "htmlpath",  # pytest-html
    "json_report_file",  # pytest-json-report
    "benchmark_json",  # pytest-benchmark, and the next two
    "benchmark_save",
    "benchmark_autosave",
)


def configure_child(config: pytest.Config) -> None:
    """Narrow the run to the request's test and turn off what would write files or wait for a person."""
    request = request_of(config)
    if request is not None and request.target is not None:
        config.args[:] = [request.target]
    config.option.usepdb = False
    for name in _OUTPUTS:
        if hasattr(config.option, name):
            setattr(config.option, name, None)
    config.option.log_file = os.devnull
    config.option.basetemp = None  # pytest empties the folder that it is given, and the parent's tests are using it
    config.pluginmanager.register(_ChildHooks(), "bandwidth-child")


class _ChildHooks:
    def __init__(self) -> None:
        # The parent waits while this process loads, and what it loads stays: there is no garbage to look for.
        self._collects = gc.isenabled()
        gc.disable()

    def pytest_runtestloop(self) -> None:
        # Called after the plugin's own, which loads the device and waits for its turn. Later searches leave all of it
        # out, those at the interpreter's end as well.
        gc.freeze()
        if self._collects:
            gc.enable()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        # For its part of the summary it loads all of Hypothesis, half a second, though no test has used it.
        plugins = session.config.pluginmanager
        if "hypothesis" not in sys.modules and plugins.has_plugin(_HYPOTHESIS):
            plugins.unregister(name=_HYPOTHESIS)

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        for name in _NOT_IN_A_FRESH_PROCESS:
            plugin = config.pluginmanager.get_plugin(name)
            if plugin is not None:
                config.pluginmanager.unregister(plugin)
