"""The documentation becomes a site without a warning, where its generator is installed."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(
    not all(importlib.util.find_spec(m) for m in ("mkdocs", "material", "mkdocstrings")),
    reason="the packages of the extra `docs` are not installed",
)


def test_the_site_is_built(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    pages = {p.relative_to(tmp_path / "site").as_posix() for p in tmp_path.rglob("*.html")}
    assert {"index.html", "overview.html", "first-chip.html", "errors/H4.html"} <= pages
    assert "notebooks/3-a-new-chip.html" in pages
    reference = (tmp_path / "site" / "api.html").read_text(encoding="utf-8")
    import hwgen

    for name in hwgen.__all__:
        assert f'id="hwgen.{name}"' in reference
    for page in sorted(pages):
        text = (tmp_path / "site" / page).read_text(encoding="utf-8")
        outside = re.findall(
            r'(?:src|href)="(https?://[^"]*)"[^>]*(?:rel="stylesheet"|></script)', text
        )
        assert not outside, page
    # A notebook's pictures are pictures, and its preformatted text keeps its lines.
    kernel = (tmp_path / "site" / "notebooks" / "1-a-kernel.html").read_text("utf-8")
    assert re.search(r'<svg [^>]*class="hwgen"[^>]*><style>[^<]*</style><text ', kernel)
    schedule = (tmp_path / "site" / "notebooks" / "2-your-own-schedule.html").read_text("utf-8")
    shown = re.findall(r"<pre>(schedule .*?)</pre>", schedule, re.DOTALL)
    assert shown
    assert all(re.match(r"schedule \w+(\n|&#10;)input ", text) for text in shown)
