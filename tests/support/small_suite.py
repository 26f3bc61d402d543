"""Keep the built-in suite small on the emulated card, which executes every thread: a pytest plugin."""

import pytest

from pytest_bandwidth.suite import selection
from pytest_bandwidth.suite.operations import stream

# Of the card's 16 GiB one MiB; products and attention at the sizes that break kernels.
selection.MEMORY_SHARE = 2**-14
selection.MOST_WORK["cuda"] = (2**23, 2**20)
# The long ends of the intensity sweep take minutes, of arithmetic alone.
stream.SWEEP = stream.SWEEP[:3]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep one data type of each operation of the full suite, since each kernel takes a second to build.

    tests/kernels runs every kernel in every type. Here CuPy's arrays and calls are tested, which depend on the
    operation or on the type, not on the pair.
    """
    if config.getoption("bandwidth_suite") != "full":
        return
    types: dict[str, list[str]] = {}
    for item in items:
        chosen = item.callspec.params["chosen"]
        if chosen.dtype not in types.setdefault(chosen.operation.title, []):
            types[chosen.operation.title].append(chosen.dtype)
    kept = {title: dtypes[n % len(dtypes)] for n, (title, dtypes) in enumerate(types.items())}
    items[:] = [
        i for i in items if kept[i.callspec.params["chosen"].operation.title] == i.callspec.params["chosen"].dtype
    ]
