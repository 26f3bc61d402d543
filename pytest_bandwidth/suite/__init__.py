"""Measure the built-in operations: ``pytest --pyargs pytest_bandwidth.suite``.

Every operation that matters in ML and HPC, as data (`operations`), with its reference (`references`) and its traffic
model (`pytest_bandwidth.domain.traffic`). ``--bandwidth-suite=full`` runs every version, dtype and shape.
"""
