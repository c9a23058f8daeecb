"""A page in a headless browser: Chromium, or Chrome, without a window or a network."""

import contextlib
import shutil
from collections.abc import Iterator
from typing import NamedTuple

from playwright.sync_api import Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Containers have no sandbox to offer, and what is opened here is our own.
OPTIONS = ("--no-sandbox", "--disable-background-networking", "--disable-gpu")


class Opened(NamedTuple):
    """A page, what it complained of, and what it asked for elsewhere."""

    page: Page
    complaints: list[str]
    requests: list[str]


@contextlib.contextmanager
def opened(address: str) -> Iterator[Opened]:
    """Opens an address; the system's browser, else what `playwright install` brought.

    Nothing is answered but what the address itself is of.
    """
    executable = next(filter(None, map(shutil.which, NAMES)), None)
    own = tuple(dict.fromkeys((address.partition("#")[0], address.rpartition("/")[0])))
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
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith((*own, "data:", "blob:"))
                else found.requests.append(request.url)
            ),
        )
        page.goto(address)
        try:
            yield found
        finally:
            browser.close()
