"""Register pytest's hooks and the fixture, choose the tests that run, and hand over to `session`.

Imports no NumPy, YAML, Jinja2 or device library: those come when bandwidth tests have been collected.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from pytest_bandwidth.options.options import (
    add_marker,
    add_options,
    given,
    is_asked_for,
    refuse_unknown,
    take,
    usage_error,
)
from pytest_bandwidth.registry import FeatureFailed, add_features, begin_run, end_run
from pytest_bandwidth.session.controller import Controller, is_bandwidth_test

if TYPE_CHECKING:
    from pytest_bandwidth.fixture.bandwidth import Bandwidth
    from pytest_bandwidth.session.session import BandwidthSession

_SESSION = pytest.StashKey["BandwidthSession"]()
_FIXTURE = pytest.StashKey["Bandwidth"]()


class _Body:
    """Hold how far a test's body is. Reports that pytest makes while it runs are of subtests."""

    __slots__ = ("ended", "subtest_failed")

    def __init__(self) -> None:
        self.ended = self.subtest_failed = False


_BODY = pytest.StashKey[_Body]()


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    try:
        add_features(pluginmanager)
    except FeatureFailed as error:
        raise usage_error(str(error)) from None


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    add_options(parser, pluginmanager)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    _take_over(early_config)  # before a conftest starts a process, which must not inherit it
    if is_asked_for(early_config):
        from pytest_bandwidth.read_files.opened import watch

        watch(str(early_config.rootpath))  # before any module of the user's is loaded


def _take_over(config: pytest.Config) -> None:
    try:
        is_ours = take(config)
    except ValueError as error:
        raise usage_error(f"bandwidth: {error}") from None
    if is_ours:
        from pytest_bandwidth.evidence.processes.start_and_end import end_with_parent

        end_with_parent()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    _take_over(config)
    begin_run(config.pluginmanager)
    config.add_cleanup(lambda: end_run(config.pluginmanager))
    add_marker(config)
    refuse_unknown(config)
    is_given = bool(given(config))
    if is_given:
        from pytest_bandwidth.options.reading import settings_of

        settings_of(config)  # a mistake is told now, whether or not bandwidth tests turn up
    controller = Controller(config)
    if controller.is_child:
        from pytest_bandwidth.evidence.processes.child_plugin import configure_child

        configure_child(config)
    elif is_given:
        from pytest_bandwidth.session.collection import begin_to_collect

        begin_to_collect(config)
    if is_given:
        from pytest_bandwidth.read_files.listing import Attributing

        config.pluginmanager.register(Attributing(), "bandwidth-files")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(controller, "bandwidth-controller")


@pytest.fixture
def bandwidth(request: pytest.FixtureRequest) -> Bandwidth:
    """Measure memory bandwidth: bandwidth(callable, …, reads=, writes=), bandwidth.launch(kernel, grid, block, …)."""
    fixture = _session_of(request.config).fixture_for(request)
    request.node.stash[_FIXTURE] = fixture
    return fixture


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = [item for item in items if is_bandwidth_test(item)]
    if not wanted and not given(config):
        return
    from pytest_bandwidth.evidence.processes.requests import request_of
    from pytest_bandwidth.options.reading import settings_of
    from pytest_bandwidth.session.collection import concerns_baseline

    settings, request = settings_of(config), request_of(config)
    if request is not None and request.nodeids is not None:
        # Whatever its signature says: it may ask for the fixture by request.getfixturevalue.
        wanted = [item for item in items if request.selects(item.nodeid)]
    selected = list(items)
    if settings.only or request is not None:
        _keep_only(config, items, wanted)
    if settings.skip:
        for item in wanted:
            item.add_marker(
                pytest.mark.skip(reason="--bandwidth-skip leaves bandwidth tests out: run without it to measure")
            )
    elif wanted or (request is None and concerns_baseline(config, selected)):
        from pytest_bandwidth.session.session import start_session

        try:
            session = config.stash[_SESSION] = start_session(config, unasked=not wanted)
        except pytest.UsageError:
            if wanted or settings.strict:
                raise
            return  # whoever runs other tests need not have a device
        kept = set(items)
        session.note_collected([item for item in selected if item not in kept])


def _keep_only(config: pytest.Config, items: list[pytest.Item], keep: list[pytest.Item]) -> None:
    kept = set(keep)
    if dropped := [item for item in items if item not in kept]:
        config.hook.pytest_deselected(items=dropped)
        items[:] = keep


def _session_of(config: pytest.Config) -> BandwidthSession:
    session = config.stash.get(_SESSION, None)
    if session is None:  # request.getfixturevalue("bandwidth"): no test asked for it by name
        from pytest_bandwidth.session.session import start_session

        session = config.stash[_SESSION] = start_session(config)
    return session


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    if config.option.collectonly or hasattr(config, "workerinput"):
        return []
    session = config.stash.get(_SESSION, None)
    lines = [] if session is None else session.header()
    if given(config):
        from pytest_bandwidth.options.reading import nothing_is_judged

        unjudged = nothing_is_judged(config)
        lines += [] if unjudged is None else [f"bandwidth: {unjudged}"]
    return lines


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    bandwidth_session = session.config.stash.get(_SESSION, None)
    if bandwidth_session is not None:
        bandwidth_session.wait_for_turn()


def pytest_sessionfinish(session: pytest.Session) -> None:
    bandwidth_session = session.config.stash.get(_SESSION, None)
    if bandwidth_session is not None:
        bandwidth_session.finish(session.items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    session = item.config.stash.get(_SESSION, None)
    if session is not None:
        session.begin(item)
    return (yield from _failing_in_one_line(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _failing_in_one_line(item))


def _failing_in_one_line(item: pytest.Item) -> Generator[None, object, object]:
    if not is_bandwidth_test(item):
        return (yield)
    from pytest_bandwidth.session.session import one_line_failures

    with one_line_failures(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[_BODY] = _Body()
    try:
        result = yield
    except BaseException as error:
        item.stash[_BODY].ended = True
        fixture = item.stash.get(_FIXTURE, None)
        if fixture is None:
            raise
        from pytest_bandwidth.session.session import one_line_failures

        fixture.ended = True
        with one_line_failures(item):
            if isinstance(error, (Exception, pytest.fail.Exception)):
                _session_of(item.config).judge_failed(item, fixture)
            raise
    item.stash[_BODY].ended = True
    # Looked up after the body, which may have asked for it by request.getfixturevalue.
    fixture = item.stash.get(_FIXTURE, None)
    if fixture is None:
        session = item.config.stash.get(_SESSION, None)
        if session is not None:
            session.judge_without_fixture(item)
        return result
    from pytest_bandwidth.session.session import one_line_failures

    fixture.ended = True
    with one_line_failures(item):
        _session_of(item.config).judge(item, fixture)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    body = item.stash.get(_BODY, None)
    if call.when == "call" and body is not None and not body.ended:  # of a subtest: the test's own is to come
        body.subtest_failed |= report.failed
        return report
    session = item.config.stash.get(_SESSION, None)
    measures = is_bandwidth_test(item) or _FIXTURE in item.stash
    if session is not None and call.when != "teardown" and (measures or session.has_entries(item)):
        session.attach(item, report, subtest_failed=body is not None and body.subtest_failed)
    # What fails while it is torn down has been judged.
    unjudged = report.failed and call.when != "teardown" and "bandwidth_rows" not in vars(report)
    if unjudged and call.excinfo is not None and measures:
        vars(report)["bandwidth_unjudged"] = call.excinfo.exconly()
        if session is not None:
            session.attach_device(report)
            session.note_failed(item, call.excinfo.exconly())
    return report
