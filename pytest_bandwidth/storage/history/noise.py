"""Tell how each test's figures scattered over its runs of the same code, which is noise and no change of code."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pytest_bandwidth.domain.baseline import Metric
from pytest_bandwidth.domain.judging.reference import Past
from pytest_bandwidth.storage.history.reading import History
from pytest_bandwidth.storage.history.series import MOMENT, figure_in

# Of a test: what a machine was like a year ago tells little of tomorrow.
NEWEST_RUNS = 30
# Runs of one hour found the machine, and memory, in one state, and count as one.
APART = "hour"
# What is unknown to be the same code is taken for it within one commit. A baseline's runs are in the baseline, and what
# a slower device lost is no noise of a kernel.
_RUNS = f"""
SELECT test, started_at, serial, method, bytes_read, bytes_written, {figure_in("gbps")} AS gbps,
    {figure_in("relative")} AS relative, coalesce(code, CASE WHEN uncommitted = false THEN "commit" END) AS same
FROM history
WHERE device_kind = $1 AND device = $2 AND test IN (SELECT unnest($3::VARCHAR[])) AND {MOMENT}
    AND status NOT IN ('INVALID', 'DEVICE', 'UPDATED') AND same IS NOT NULL
QUALIFY row_number() OVER (
    PARTITION BY test, serial, same, date_trunc('{APART}', started_at) ORDER BY started_at DESC
) = 1
"""
_NEWEST = f"""
SELECT * FROM ({_RUNS})
QUALIFY row_number() OVER (PARTITION BY test ORDER BY started_at DESC) <= {NEWEST_RUNS}
"""


_FIGURES: tuple[Metric, ...] = ("gbps", "relative")
_OF_CODE = ", ".join(f"var_pop(ln({f})) * count({f}) AS {f}_squares, count({f}) - 1 AS {f}_degrees" for f in _FIGURES)
# A figure that no run of a code holds has neither.
_OF_TEST = ", ".join(f"coalesce(sum({f}_squares), 0), sum(greatest({f}_degrees, 0))::BIGINT" for f in _FIGURES)


def noise_in(
    history: History, device_kind: str, device: str, tests: Collection[str]
) -> Mapping[Metric, Mapping[str, Past]]:
    """Return by figure, and by baseline key, how tests scattered on the devices of a model: of those that have runs.

    Each code, on each device, scatters about a mean of its own. tests: the keys that are asked for.
    """
    rows = history.rows(
        f"SELECT test, {_OF_TEST} FROM (SELECT test, {_OF_CODE} FROM ({_NEWEST}) "
        "GROUP BY test, serial, same, method, bytes_read, bytes_written) GROUP BY test",
        [device_kind, device, sorted(tests)],
    )
    return {
        figure: {row[0]: Past(*told) for row in rows if (told := row[1 + 2 * at : 3 + 2 * at])[1]}
        for at, figure in enumerate(_FIGURES)
    }
