"""Names of devices: the one that a process tells its fresh processes opens the same device there."""

import importlib.util
import sys

import pytest

from pytest_bandwidth.devices.open import name_of, open_device
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.errors import DeviceUnavailable

DEVICES = "pytest_bandwidth.devices"
NO_NVRTC = "the traffic device needs NVRTC: pip install 'pytest-bandwidth[traffic]'"


@pytest.mark.parametrize(
    ("identity", "name"),
    [
        (DeviceIdentity("cuda", "GPU", None, "GPU-1", facts={"index": 3}), "cuda:3"),
        (DeviceIdentity("cuda", "GPU", None, "GPU-1"), "cuda:0"),
        (DeviceIdentity("cpu", "Host", None, "host", facts={"index": 3}), "cpu"),
        (DeviceIdentity("tinygrad", "GPU", None, "t", settings={"backend": "METAL"}), "tinygrad:METAL"),
        (DeviceIdentity("tinygrad", "GPU", None, "t", {"backend": "AMD"}, {"index": 1}), "tinygrad:AMD:1"),
        (DeviceIdentity("traffic", "PTX", None, "traffic", settings={"arch": "sm_80"}), "traffic:sm_80"),
    ],
)
def test_names(identity, name):
    assert name_of(identity) == name


@pytest.mark.parametrize("name", ["cpu", "traffic:sm_80"])
def test_a_name_opens_the_device_that_it_is_of(name):
    if name.startswith("traffic") and importlib.util.find_spec("cuda.bindings") is None:
        pytest.skip(NO_NVRTC)
    assert name_of(open_device(name).identity) == name


def test_the_traffic_device_without_its_extra_is_told_in_one_line(monkeypatch):
    for module in [name for name in sys.modules if name.startswith("pytest_bandwidth.features.traffic")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "lark", None)
    with pytest.raises(DeviceUnavailable, match=r"^the traffic device needs lark: pip install 'pytest-bandwidth"):
        open_device("traffic")
