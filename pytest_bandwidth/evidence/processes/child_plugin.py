"""Make pytest in a child measure what its request names, and write none of its parent's files."""

from __future__ import annotations

import os
import sys

import pytest

from pytest_bandwidth.evidence.processes.requests import request_of

# These plugins select tests by earlier failures, or write files that only the parent may write.
_NOT_IN_A_FRESH_PROCESS = ("lfplugin", "nfplugin", "stepwiseplugin")

_HYPOTHESIS = "hypothesispytest"

# Options with paths that pytest and plugins write to, by their names in the namespace: those files are the parent's.
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
    """Narrow the run to the request's tests, and turn off options that would write files or wait for a person."""
    request = request_of(config)
    if request is not None and request.target is not None:
        config.args[:] = [request.target]
    config.option.usepdb = False
    for name in _OUTPUTS:
        if hasattr(config.option, name):
            setattr(config.option, name, None)
    config.option.log_file = os.devnull
    config.option.basetemp = None  # pytest empties this folder, and the parent's tests are using it
    config.pluginmanager.register(_ChildHooks(), "bandwidth-child")


class _ChildHooks:
    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        # For its part of the summary this plugin loads all of Hypothesis (0.5 s), even if no test has used it.
        plugins = session.config.pluginmanager
        if "hypothesis" not in sys.modules and plugins.has_plugin(_HYPOTHESIS):
            plugins.unregister(name=_HYPOTHESIS)

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        for name in _NOT_IN_A_FRESH_PROCESS:
            plugin = config.pluginmanager.get_plugin(name)
            if plugin is not None:
                config.pluginmanager.unregister(plugin)
