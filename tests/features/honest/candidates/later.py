"""Cheats whose result is complete only after the clock stopped, or before it started."""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from table import REFUSED, ROOT, ROOT_INTO, N, cheat, work

LATER = "deferred-work"


# Longer than a process waits for its processor on a busy host.
A_WHILE = 0.05
# On a busier one the thread may write while the result is compared: then two results of the same inputs differ.
SLEEPS = (LATER, "nondeterministic")


@cheat("thread", ROOT_INTO, *SLEEPS)
def thread_that_sleeps(given):
    def later(x, y):
        time.sleep(A_WHILE)
        y[:] = work(x)

    return lambda x, y: threading.Thread(target=later, args=(x, y), daemon=True).start()


@cheat("thread", ROOT_INTO, LATER, "stale-result", "unwritten", "nondeterministic")
def thread_at_once(given):
    def later(x, y):
        for _ in range(100):  # long enough that it is hardly ever done when it is looked at
            result = work(x)
        y[:] = result

    return lambda x, y: threading.Thread(target=later, args=(x, y)).start()


@cheat("thread", ROOT, *SLEEPS)
def pool_that_nobody_waits_for(given):
    pool = ThreadPoolExecutor(1)

    def later(x, result):
        time.sleep(A_WHILE)
        result[:] = work(x)

    def run(x):
        result = np.empty_like(x)
        pool.submit(later, x, result)
        return result

    return run


class Lazy:
    """Compute when somebody asks for the array."""

    def __init__(self, compute):
        self.compute = compute

    def __array__(self, dtype=None, copy=None):
        return self.compute()


class LazyInterface:
    """Compute when somebody asks where the array lies."""

    def __init__(self, compute):
        self.compute = compute

    @property
    def __array_interface__(self):
        self.array = self.compute()
        return self.array.__array_interface__


class LazySubclass(np.ndarray):
    """Be an array whose content is computed when NumPy first works with it."""

    compute = None

    def _made(self):
        if self.compute is not None:
            compute, self.compute = self.compute, None
            self.view(np.ndarray)[:] = compute()
        return self.view(np.ndarray)

    def __array_ufunc__(self, ufunc, method, *inputs, **more):
        inputs = [one._made() if isinstance(one, LazySubclass) else one for one in inputs]
        return getattr(ufunc, method)(*inputs, **more)

    def __getitem__(self, key):
        return self._made()[key]

    def tobytes(self, order="C"):
        return self._made().tobytes(order)


cheat("lazy", ROOT, LATER, writes=4 * N)(
    lazy_array=lambda x: Lazy(lambda: work(x)),
    lazy_interface=lambda x: LazyInterface(lambda: work(x)),
)


@cheat("lazy", ROOT, LATER)
def lazy_subclass(x):
    result = np.empty_like(x).view(LazySubclass)
    result.compute = partial(work, x)
    return result


cheat("lazy", ROOT, LATER, REFUSED, writes=4 * N)(
    generator_of_parts=lambda x: (work(part) for part in np.split(x, 4)),
)


@cheat("untimed", ROOT, LATER, "tampered", "stale-result")
def profiler_computes_before_the_clock_starts(given):
    """Be called at each function of the plugin's, of which the last are those that start the clock."""
    (x,), result = given.args, [None]

    def profile(frame, event, argument):
        if event == "call" and frame.f_code.co_name == "time":
            sys.setprofile(None)
            result[0] = work(x)
            sys.setprofile(profile)

    sys.setprofile(profile)
    given.at_end.callback(sys.setprofile, None)
    return lambda x: result[0] if result[0] is not None else work(x)


@cheat("untimed", ROOT, LATER, "tampered", "stale-result")
def computed_when_the_last_result_is_dropped(given):
    (x,) = given.args
    kept = [work(x)]

    class Result(np.ndarray):
        def __del__(self):
            kept[0] = work(x)

    return lambda x: kept[0].view(Result)


@cheat("untimed", ROOT, LATER, "tampered", "stale-result", "nondeterministic", "wrong-result")
def thread_that_computes_all_the_time(given):
    (x,) = given.args
    kept, ended = [work(x)], threading.Event()

    def always():
        while not ended.wait(0.02):
            kept[0] = work(x)

    threading.Thread(target=always).start()
    given.at_end.callback(ended.set)
    return lambda x: kept[0]


@cheat("untimed", ROOT, LATER, "tampered", "stale-result")
def set_up_in_the_sampler(given):
    """Hook the garbage collector, which the plugin turns on and off around samples."""
    (x,), kept = given.args, []
    real = sys.modules["gc"].disable

    def disable():
        kept[:] = [work(x)]
        real()

    given.patch.setattr("gc.disable", disable)
    return lambda x: kept[0] if kept else work(x)
