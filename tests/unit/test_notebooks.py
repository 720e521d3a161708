"""The notebooks of the documentation run, and show what running them gives."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from hwgen.model.c_compiler import have_compiler
from tests.conftest import Golden
from tests.sampling import THOROUGH

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
SECONDS = 300
"""For a cell; most take less than two, an exploration a minute of two cores."""


def executed(path: Path, folder: Path) -> str:
    """A notebook run from its beginning, in a folder of its own; what differs between runs is left
    out."""
    # Both packages are without types.
    nbformat: Any = import_module("nbformat")
    nbclient: Any = import_module("nbclient")
    notebook = nbformat.read(path, as_version=4)
    kept = dict(notebook.metadata)
    resources = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(notebook, timeout=SECONDS, resources=resources).execute()
    notebook.metadata = {**kept, "language_info": {"name": "python"}}
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = joined(cell.outputs)
    text: str = nbformat.writes(notebook)
    return json.dumps(json.loads(text), indent=1, ensure_ascii=False, sort_keys=True)


def joined(outputs: list[Any]) -> list[Any]:
    """Outputs with consecutive text as one: how it was cut depends on the machine's speed."""
    whole: list[Any] = []
    for output in outputs:
        if whole and output.output_type == whole[-1].output_type == "stream":
            whole[-1].text += output.text
        else:
            whole.append(output)
    return whole


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) == 4


@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
@THOROUGH
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_shows_what_it_computes(path: Path, tmp_path: Path, golden: Golden) -> None:
    golden(path, executed(path, tmp_path))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_names_no_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert str(FOLDER.parents[1]) not in text
    assert "Traceback" not in text
    assert "<script" not in text
