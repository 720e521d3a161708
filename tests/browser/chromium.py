"""Chromium for the tests of pages, and a page in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, sync_playwright

REQUIRED = "HWGEN_REQUIRE_BROWSER"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@contextmanager
def chromium(profile: Path) -> Generator[BrowserContext]:
    """Chromium with a profile of its own."""
    program = next((p for p in map(shutil.which, NAMES) if p is not None), None)
    if program is None:
        reason = f"no Chromium: none of {', '.join(NAMES)} is installed"
        if os.environ.get(REQUIRED):
            pytest.fail(f"{reason}, and {REQUIRED} is set")
        pytest.skip(reason)
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            profile,
            executable_path=program,
            headless=True,
            args=ARGUMENTS,
            viewport={"width": 1280, "height": 900},
        )
        yield context
        context.close()


class Shown:
    """A page in the browser, and what it said and asked for."""

    def __init__(self, browser: BrowserContext, text: str, path: Path) -> None:
        path.write_text(text, encoding="utf-8")
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.view: Page = browser.new_page()
        self.view.on("console", lambda message: self.messages.append(message.text))
        self.view.on("pageerror", lambda error: self.messages.append(str(error)))
        self.view.on("request", lambda request: self.requests.append(request.url))
        self.url = path.as_uri()
        self.view.goto(self.url)
        self.view.wait_for_selector("body[data-ready=yes]")

    def number(self, expression: str) -> float:
        """The value of a JavaScript expression."""
        return float(self.view.evaluate(expression))

    def until(self, condition: str) -> None:
        """Wait for a JavaScript condition.

        Playwright's own waiting evaluates text in the page, which the page's policy forbids.
        """
        for _ in range(100):
            if self.view.evaluate(condition):
                return
            self.view.wait_for_timeout(50)
        pytest.fail(f"not within five seconds: {condition}")
