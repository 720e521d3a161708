"""Results of explorations as an Arrow table, for Parquet."""

from __future__ import annotations

from typing import Any

from hwgen.exploration.results import Results, row_types, rows
from hwgen.packages import needed


def results_table(results: Results) -> Any:
    """A `pyarrow.Table`: the columns of the CSV with their types; null where nothing is known.

    Raises:
        HwgenError: H046 without the package `pyarrow`.
    """
    arrow = _package("pyarrow")
    types = {int: arrow.int64(), float: arrow.float64(), str: arrow.string(), bool: arrow.bool_()}
    fields = [(name, types[kind]) for name, kind in row_types(results).items()]
    return arrow.Table.from_pylist(list(rows(results)), arrow.schema(fields))


def parquet_package() -> Any:
    """The module that writes files.

    Raises:
        HwgenError: H046 where it is not installed.
    """
    return _package("pyarrow.parquet")


def _package(module: str) -> Any:
    return needed(module, "writes Parquet files", "parquet")
