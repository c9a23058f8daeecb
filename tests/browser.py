"""A page in a headless browser: Chromium or Chrome, without a window."""

import contextlib
import shutil
from collections.abc import Iterator
from typing import NamedTuple

from playwright.sync_api import Page, Route, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Containers have no sandbox to offer, and what is opened here is our own.
OPTIONS = ("--no-sandbox", "--disable-background-networking")


class Opened(NamedTuple):
    """A page, what it complained of, and what it asked for elsewhere."""

    page: Page
    complaints: list[str]
    requests: list[str]


@contextlib.contextmanager
def opened(address: str) -> Iterator[Opened]:
    """Opens an address; the system's browser, else what `playwright install` brought.

    Nothing is answered but what lies beside the address.
    """
    executable = next(filter(None, map(shutil.which, NAMES)), None)
    own = (address.rpartition("/")[0], "data:", "blob:")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable, args=list(OPTIONS)
        )
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        found = Opened(page, [], [])
        page.on("pageerror", lambda error: found.complaints.append(str(error)))
        page.on(
            "console",
            lambda message: (
                found.complaints.append(message.text)
                if message.type in ("error", "warning")
                else None
            ),
        )

        def answer(route: Route) -> None:
            if route.request.url.startswith(own):
                route.continue_()
            else:
                found.requests.append(route.request.url)
                route.abort()

        page.route("**/*", answer)
        page.goto(address)
        try:
            yield found
        finally:
            browser.close()
