"""Run what NumPy cannot express without many passes as loops over lanes, compiled by Numba.

Lanes stand in arrays of shape (blocks, threads), threads padded to whole warps of 32; arrays that do not differ between
blocks, or between threads, have one row or one column and are broadcast by the caller.
`mask` tells which lanes take part.
"""
