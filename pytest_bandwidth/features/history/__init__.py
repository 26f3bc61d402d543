"""Follow tests, and the cards of a fleet, over many runs.

A history is a folder or bucket of Parquet files, to which `writing.append` adds one a run, and of which `reading.ask`
asks by DuckDB. DuckDB is imported when one of them runs, fsspec where an address is given.
"""

MISSING = "the history needs DuckDB and ruptures: pip install 'pytest-bandwidth[history]'"
