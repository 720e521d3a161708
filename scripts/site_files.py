"""What the site of the documentation has besides docs/: a hook of MkDocs, named in `mkdocs.yml`.

The Markdown files of docs/ link to files of the repository, as readers on a code host need it. Here
the README and its like become pages, notebooks become pages with their output, other files of the
repository are copied, and links lead to these. Nothing is written outside the site.
"""

from __future__ import annotations

import ast
import json
import posixpath
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "overview.md", "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md", "CODE_OF_CONDUCT.md": "conduct.md",
    "SECURITY.md": "security.md",
}  # fmt: skip
"""Files of the repository that are pages of the site, and what they are called there."""

_LINK = re.compile(r"(?<=\]\()([^)#\s:]+)(#[^)\s]*)?(?=\))")
_PRE = re.compile(r"<pre\b.*?</pre>", re.DOTALL)
_FENCE = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_files(files: Any, *, config: Any, **_: Any) -> Any:
    """Add pages and files; MkDocs calls it once it knows docs/."""
    made = cast("Any", import_module("mkdocs.structure.files")).File.generated
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(made(config, page, content=relinked(text, source)))
    for path in sorted(ROOT.glob("docs/notebooks/*.ipynb")):
        source = path.relative_to(ROOT).as_posix()
        text = relinked(notebook(path), source)
        files.append(made(config, f"notebooks/{path.stem}.md", content=text))
    files.append(made(config, "api.md", content=api()))
    for target in sorted(copied()):
        files.append(made(config, target, abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Make links of a page of docs/ lead to where the site has the thing."""
    source = f"docs/{page.file.src_uri}"
    return relinked(markdown, source) if (ROOT / source).is_file() else markdown


def relinked(text: str, source: str) -> str:
    """The Markdown of a file of the repository, with its links as they are in the site."""
    parts = _FENCE.split(text)
    return "".join(
        part if number % 2 else _LINK.sub(lambda m: _target(m[1], source) + (m[2] or ""), part)
        for number, part in enumerate(parts)
    )


def _target(link: str, source: str) -> str:
    where = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
    here = posixpath.dirname(in_site(source))
    return posixpath.relpath(in_site(where), here or ".")


def in_site(path: str) -> str:
    """A file of the repository by its name in the sources of the site."""
    if path in PAGES:
        return PAGES[path]
    inside = path.removeprefix("docs/")
    if inside != path:
        folder = (ROOT / path).is_dir()
        inside = f"{inside}/README.md" if folder else inside
        return inside.removesuffix(".ipynb") + ".md" if inside.endswith(".ipynb") else inside
    return path


def copied() -> set[str]:
    """Files of the repository outside docs/ that some page links to."""
    found: set[str] = set()
    for path in [*(ROOT / p for p in PAGES), *ROOT.glob("docs/**/*.md")]:
        folder = path.parent.relative_to(ROOT).as_posix()
        for link, _ in _LINK.findall(_FENCE.sub("", path.read_text(encoding="utf-8"))):
            target = posixpath.normpath(posixpath.join(folder, link))
            if not target.startswith(("docs/", "..")) and target not in {*PAGES, "docs"}:
                found.add(target)
    return found


def api() -> str:
    """The reference of the names that `hwgen` gives, each from its docstring."""
    tree = ast.parse((ROOT / "hwgen" / "__init__.py").read_text(encoding="utf-8"))
    names = next(
        [cast("str", ast.literal_eval(e)) for e in value.elts]
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(value := node.value, ast.List)
    )
    head = "# The names of `hwgen`\n\n[In Python](python.md) is the guide; this is each name.\n"
    return "\n".join([head, *(f"::: hwgen.{name}\n" for name in names)])


def notebook(path: Path) -> str:
    """A notebook as Markdown, with its output as it was saved."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join(part for cell in cells for part in _cell(cell)) + "\n"


def _cell(cell: dict[str, Any]) -> Iterator[str]:
    text = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield text
        return
    yield f"```python\n{text}\n```"
    for output in cell["outputs"]:
        data = output.get("data", {"text/plain": output.get("text", [])})
        if "text/html" in data:
            # HTML ends at an empty line or behind its first element; preformatted text keeps lines.
            shown = _PRE.sub(lambda m: m[0].replace("\n", "&#10;"), "".join(data["text/html"]))
            yield f"<div>{''.join(shown.splitlines())}</div>"
        elif shown := "".join(data["text/plain"]).rstrip():
            yield f"```text\n{shown}\n```"
