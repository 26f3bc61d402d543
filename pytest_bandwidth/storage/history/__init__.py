"""Keep the history: a folder of Parquet files to which every run adds one, read by DuckDB.

`append` → one more run; `ask` → a `History` to ask. DuckDB (the extra ``history``) is imported when one of them runs.
"""

from __future__ import annotations

from pytest_bandwidth.storage.history.columns import COLUMNS
from pytest_bandwidth.storage.history.database import MISSING
from pytest_bandwidth.storage.history.reading import History, ask
from pytest_bandwidth.storage.history.writing import append

__all__ = ["COLUMNS", "MISSING", "History", "append", "ask"]
