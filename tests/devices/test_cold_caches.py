"""When caches are made cold, and what is told of it."""

from pytest_bandwidth.devices.cold_caches import ASSUMED_CACHE_BYTES, LARGEST_EVICTION_BYTES, CacheEviction

MIB = 2**20


class Recorder:
    def __init__(self):
        self.read_bytes = []
        self.written_bytes = []

    def eviction(self, cache_bytes):
        return CacheEviction(self.reader, cache_bytes)

    def reader(self, size):
        self.written_bytes.append(size)
        return lambda: self.read_bytes.append(size)


def test_data_that_a_cache_could_hold_is_evicted_by_four_times_the_cache():
    recorder = Recorder()
    eviction = recorder.eviction(MIB)
    eviction.prepare(5 * MIB - 1)
    recorder.read_bytes.clear()
    eviction.evict()
    assert recorder.read_bytes == [4 * MIB]
    assert recorder.written_bytes == [4 * MIB]


def test_data_five_times_the_cache_is_cold_by_itself():
    recorder = Recorder()
    eviction = recorder.eviction(MIB)
    eviction.prepare(5 * MIB)
    eviction.evict()
    assert recorder.read_bytes == []
    assert eviction.finding(5 * MIB) is None


def test_data_that_another_process_has_just_used_is_evicted_whatever_its_size():
    recorder = Recorder()
    eviction = recorder.eviction(MIB)
    eviction.prepare(5 * MIB, others_have_them=True)
    recorder.read_bytes.clear()
    eviction.evict()
    assert recorder.read_bytes == [4 * MIB]
    assert eviction.finding(5 * MIB) is None, "no cache could hold it"


def test_the_finding_names_sizes_and_cost():
    eviction = Recorder().eviction(MIB)
    eviction.prepare(1000)
    eviction.evict()
    found = eviction.finding(1000)
    assert found is not None
    assert found.code == "cache-evicted"
    assert "1 kB of data is less than 5 × the 1.05 MB last-level cache" in found.text
    assert "4.19 MB of other memory were read, " in found.text


def test_an_eviction_that_is_capped_says_what_would_be_wanted():
    eviction = Recorder().eviction(300 * MIB)
    eviction.prepare(1000)
    eviction.evict()
    found = eviction.finding(1000)
    assert found is not None
    assert "537 MB of other memory were read (1.26 GB would be wanted: some of the data may stay)" in found.text


def test_a_cache_of_unknown_size_is_assumed_and_said_to_be():
    eviction = Recorder().eviction(None)
    assert eviction.cache_bytes == ASSUMED_CACHE_BYTES
    eviction.prepare(1000)
    eviction.evict()
    found = eviction.finding(1000)
    assert found is not None
    assert "assumed" in found.text


def test_the_cost_is_capped():
    assert Recorder().eviction(10**12).eviction_bytes == LARGEST_EVICTION_BYTES


def test_the_buffer_is_made_once_and_given_back():
    recorder = Recorder()
    eviction = recorder.eviction(MIB)
    eviction.prepare(1)
    eviction.prepare(1)
    assert len(recorder.written_bytes) == 1
    eviction.release()
    eviction.evict()
    assert eviction.finding(1) is None
    eviction.prepare(1)
    assert len(recorder.written_bytes) == 2


def test_what_was_told_of_one_workload_is_not_told_of_the_next():
    eviction = Recorder().eviction(MIB)
    eviction.prepare(1)
    eviction.evict()
    eviction.prepare(100 * MIB)
    eviction.evict()
    assert eviction.finding(100 * MIB) is None
