"""Samples in which JAX compiles do not count, and the row says so; what PyTorch has in its place."""

from itertools import count

import numpy as np
import pytest

from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.frameworks.waiting import recompiled


@pytest.mark.bandwidth(device="cpu", min_samples=4, max_time=0.2)
def test_each_third_sample_is_dropped_where_each_third_call_has_another_shape(bandwidth, jax):
    jitted, calls = jax.jit(lambda x: x + 1), count(1)

    def call(x):
        n = next(calls)
        return jitted(np.ones(n, np.float32) if n % 3 == 0 else x)

    rounds = bandwidth(call, jax.numpy.ones(7), reads=28, writes=28).rounds
    spoilt = [one for one in rounds.dropped if one.code == "recompiled"]
    assert spoilt
    assert "JAX compiled during the sample: shapes, types, static arguments or the function" in spoilt[0].reason
    assert {one.round % 3 for one in spoilt} == {spoilt[0].round % 3}


@pytest.mark.bandwidth(device="cpu", min_samples=3, max_time=0.02)
def test_what_compiles_in_every_call_leaves_no_sample(bandwidth, jax):
    found = bandwidth(lambda x: jax.jit(lambda x: x + 1)(x), jax.numpy.ones(8), reads="args", writes="result")
    assert "JAX compiled during the sample" in found.invalid.text


@pytest.mark.bandwidth(device="cpu", min_samples=3, max_time=0.02)
def test_what_was_compiled_before_drops_nothing(bandwidth, jax):
    found = bandwidth(jax.jit(lambda x: x + 1), jax.numpy.ones(9), reads="args", writes="result")
    assert not [one for one in found.rounds.dropped if one.code == "recompiled"]


def test_a_compilation_is_told_once(jax):
    told = recompiled()
    assert told is not None
    jax.jit(lambda x: x * 3)(np.ones(5, np.float32))
    assert told() is not None
    assert told() is None


@pytest.mark.bandwidth(device="cpu", min_samples=3, max_time=0.02)
def test_torchs_own_stance_makes_a_recompilation_an_error(bandwidth, torch):
    """PyTorch has no public account of its recompilations: this is what the docs say instead."""
    compiled, sizes = torch.compile(lambda x: x + 1, backend="eager", dynamic=False), count(2)
    compiled(torch.ones(2))
    with (
        torch.compiler.set_stance("fail_on_recompile"),
        pytest.raises(BandwidthError, match="the measured callable raised RuntimeError: Detected recompile"),
    ):
        bandwidth(lambda: compiled(torch.ones(next(sizes))), reads=8, writes=8)
