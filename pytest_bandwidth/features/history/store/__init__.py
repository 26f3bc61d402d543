"""Keep the history: a folder or bucket of Parquet files to which every run adds one, read by DuckDB.

`append` → one more run; `ask` → a `History` to ask; DuckDB (the extra
``history``) is imported when one of them runs, fsspec (the extra ``bucket``) where an address is given.
"""

from __future__ import annotations

from pytest_bandwidth.features.history.store.bucket import Bucket
from pytest_bandwidth.features.history.store.columns import COLUMNS
from pytest_bandwidth.features.history.store.reading import History, Place, ask, known_runs
from pytest_bandwidth.features.history.store.writing import append

__all__ = ["COLUMNS", "Bucket", "History", "Place", "append", "ask", "known_runs"]
