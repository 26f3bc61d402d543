"""Open the HTML summary in a real browser: Debian's Chromium, driven by Playwright, without network.

`apt-get install chromium` and the dependency group `browser` provide both, and axe-core by axe-playwright-python, so
that CI needs no npm. Where any is missing, these tests skip with a reason, or fail with it where
`BROWSER_TESTS=required`.
"""

import importlib.util
from pathlib import Path

import pytest
from chromium import CHROMIUM, DESKTOP, FLAGS, Opened, end_without


@pytest.fixture(scope="session")
def browser():
    if importlib.util.find_spec("playwright") is None:
        end_without("playwright is not installed: pip install playwright")
    if CHROMIUM is None:
        end_without("pages are tested in a real browser, and no Chromium is here: apt-get install chromium")
    from playwright import sync_api

    with sync_api.sync_playwright() as playwright:
        # Playwright gives each launch an empty profile of its own and removes it afterwards.
        started = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=list(FLAGS))
        yield started
        started.close()


@pytest.fixture(scope="session")
def violations():
    """Return what axe-core finds in a page: no serious violation is meant to be there, nor any lesser one."""
    found = importlib.util.find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        end_without("accessibility is judged by axe-core, which is not installed: pip install axe-playwright-python")
    axe = Path(found.origin).with_name("axe.min.js").read_text(encoding="utf-8")

    def of(page):
        page.evaluate(axe)
        found = page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")["violations"]
        return [
            f"{v['impact']} {v['id']}: {[n['target'] for n in v['nodes']][:5]} {v['nodes'][0]['failureSummary']}"
            for v in found
        ]

    return of


@pytest.fixture
def open_page(browser, tmp_path):
    """Open HTML text from a file: `open_page(text, size=PHONE, dark=True)`. No page may complain or load anything.

    instead_of: a page that was opened before, to open this one in its place.
    """
    contexts, everything = [], []

    def opened(text, size=DESKTOP, dark=False, hash="", instead_of=None, **more):
        file = tmp_path / f"summary{len(contexts)}.html"
        file.write_text(text, encoding="utf-8")
        if instead_of is not None:
            instead_of.page.goto(f"{file.as_uri()}{hash}")
            instead_of.loads += 1
            return instead_of
        context = browser.new_context(
            offline=True,
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
            **more,
        )
        contexts.append(context)
        made = Opened(context.new_page())
        everything.append(made)
        page = made.page
        page.set_default_timeout(20_000)
        page.on("console", lambda m: made.complaints.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: made.complaints.append(str(error)))
        page.on("request", lambda request: made.requests.append(request.url))
        page.on("dialog", lambda dialog: (made.dialogs.append(dialog.message), dialog.dismiss()))
        page.goto(f"{file.as_uri()}{hash}")
        return made

    yield opened
    for made in everything:
        assert made.complaints == []
        assert made.dialogs == []
        assert [url for url in made.requests if not url.startswith("file:///")] == []
        assert len(made.requests) == made.loads
    for context in contexts:
        context.close()
