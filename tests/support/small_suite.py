"""Keep the built-in suite small on the emulated card, which executes every thread: a pytest plugin."""

from pytest_bandwidth.suite import selection
from pytest_bandwidth.suite.operations import stream

# Of the card's 16 GiB one MiB; products and attention at the sizes that break kernels.
selection.MEMORY_SHARE = 2**-14
selection.MOST_WORK["cuda"] = (2**23, 2**20)
# The long ends of the intensity sweep take minutes, of arithmetic alone.
stream.SWEEP = stream.SWEEP[:3]
