"""What a shape costs when work comes in tiles and tiles come in waves.

Source of the terms: NVIDIA, Matrix Multiplication Background User's Guide, "Tile quantization" and "Wave
quantization", https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_bandwidth.domain.traffic.model import count, tiles


@dataclass(frozen=True, slots=True)
class Quantization:
    """Whole units that cover some work, and the share of them that is used.

    units: tiles, or waves. used: work ÷ capacity of those units, in (0, 1]; 1.0 where there is no work.
    """

    units: int
    used: float


def tile_quantization(extent: int, tile: int) -> Quantization:
    """Tiles along one dimension: 33 rows in tiles of 8 are 5 tiles, 82.5 % used. Raises UsageError for tile < 1."""
    extent, tile = count("extent", extent), count("tile", tile, least=1)
    units = tiles(extent, tile)
    return Quantization(units, extent / (units * tile) if units else 1.0)


def output_tiles(m: int, n: int, tile_rows: int, tile_cols: int) -> int:
    """Tiles of an m×n result: ⌈m/tile_rows⌉·⌈n/tile_cols⌉. Raises UsageError for a tile side < 1."""
    return tile_quantization(m, tile_rows).units * tile_quantization(n, tile_cols).units


def wave_quantization(blocks: int, multiprocessors: int, blocks_per_multiprocessor: int = 1) -> Quantization:
    """Rounds in which a device runs `blocks` of equal length, and how full they are.

    On 108 multiprocessors 98 blocks are one wave, 91 % full; 120 are two, 56 % full. Raises UsageError for counts < 1.
    """
    at_once = count("multiprocessors", multiprocessors, least=1) * count(
        "blocks_per_multiprocessor", blocks_per_multiprocessor, least=1
    )
    return tile_quantization(blocks, at_once)


def lane_quantization(innermost: int, lanes: int = 32) -> Quantization:
    """Warps that walk one row of `innermost` elements, and the share of lanes that have an element.

    33 columns need 2 warps with 52 % of their lanes at work, if each row begins a warp of its own.
    """
    return tile_quantization(innermost, lanes)
