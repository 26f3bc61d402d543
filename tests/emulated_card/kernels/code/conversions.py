"""cvt, in every rounding mode; the clamping and directed parts are functions of c/conversions.h."""

from __future__ import annotations

from collections.abc import Mapping

from emulated_card.kernels.code.types import C_TYPES, MODES, Rule

Choice = Mapping[str, str]

_FLOATS = ("f16", "bf16", "f32", "f64")
_HALVES = ("f16", "bf16")
_INTEGRAL = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def _convert(choice: Choice, x: list[str]) -> str:
    to, of = choice["dst"], choice["src"]
    if to in _FLOATS and of in _FLOATS:
        return _float_to_float(choice, to, of, x[0])
    if to in _FLOATS:
        return _integer_to_float(choice, to, of, x[0])
    if of in _FLOATS:
        return _float_to_integer(choice, to, of, x[0])
    return _integer_to_integer(choice, to, of, x[0])


def _limits(kind: str) -> tuple[int, int]:
    bits = int(kind[1:])
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)


def _literal(value: int) -> str:
    return f"({value}ull)" if value > 2**63 - 1 else "INT64_MIN" if value == -(2**63) else f"({value}ll)"


def _integer_to_integer(choice: Choice, to: str, of: str, a: str) -> str:
    if "sat" in choice:
        own, wanted = _limits(of), _limits(to)
        low, high = _literal(max(own[0], wanted[0])), _literal(min(own[1], wanted[1]))
        cast = f"({C_TYPES[of]})"
        a = f"({a} < {cast}{low} ? {cast}{low} : {a} > {cast}{high} ? {cast}{high} : {a})"
    return f"({C_TYPES[to]}){a}"


def _float_to_integer(choice: Choice, to: str, of: str, a: str) -> str:
    value = f"f32_of_{of}({a})" if of in _HALVES else f"flush_f32({a})" if "ftz" in choice and of == "f32" else a
    sign_on_nan = int(of == "f64" or to.endswith("64"))
    return f"{to}_of_f64({_INTEGRAL[choice.get('irnd', 'rzi')]}((double){value}), {sign_on_nan})"


def _integer_to_float(choice: Choice, to: str, of: str, a: str) -> str:
    mode, sat = choice.get("rnd", "rn"), "sat" in choice
    if to in _HALVES:
        wide = f"odd_of_{of}({a})" if of.endswith("64") else f"(double){a}"
        return f"{to}_directed({f'sat_f64({wide})' if sat else wide}, {MODES[mode]})"
    if mode == "rn":
        value = f"({C_TYPES[to]}){a}"
    else:
        negative = f"({a} < 0)" if of[0] == "s" else "0"
        wide = f"(int64_t){a}" if of[0] == "s" else f"(uint64_t){a}"
        size = f"({negative} ? 0 - (uint64_t)({wide}) : (uint64_t)({wide}))"
        value = f"{to}_of_u64({size}, {negative}, {MODES[mode]})"
    return f"sat_{to}({value})" if sat else value


def _float_to_float(choice: Choice, to: str, of: str, a: str) -> str:
    mode = choice.get("rnd") or choice.get("nearzero") or "rn"
    wide = "f64" if of == "f64" else "f32"
    value = f"flush_f32({a})" if "ftz" in choice and of == "f32" else a
    value = f"f32_of_{of}({value})" if of in _HALVES else value
    if "irnd" in choice:
        value = f"{_INTEGRAL[choice['irnd']]}{'f' if wide == 'f32' else ''}({value})"
    if "relu" in choice:
        value = f"floored_{wide}({value})"
    if "sat" in choice:
        value = f"sat_{wide}({value})"
    if to in _HALVES:
        return f"{to}_directed({value}, {MODES[mode]})" if mode != "rn" else f"{to}_of_{wide}({value})"
    if to == "f32" and wide == "f64":
        value = f"narrow_f32({value}, 0.0, {MODES[mode]})" if mode != "rn" else f"(float){value}"
    elif to == "f64":
        value = f"(double){value}"
    return f"flush_f32({value})" if "ftz" in choice and to == "f32" else value


def _to_half(choice: Choice, x: list[str]) -> str:
    return _float_to_float(choice, choice["dst16"], "f32", x[0])


def _to_pair(choice: Choice, x: list[str]) -> str:
    high, low = (_float_to_float(choice, choice["packed"].removesuffix("x2"), "f32", item) for item in x)
    return f"((uint32_t)(uint16_t)({high}) << 16 | (uint16_t)({low}))"


# Bits of a float, and of its mantissa.
_SMALL = {"e4m3x2": (8, 3), "e5m2x2": (8, 2), "e2m3x2": (6, 3), "e3m2x2": (6, 2), "e2m1x2": (4, 1)}


def _ending(choice: Choice) -> tuple[str, int]:
    """Return the last arguments of a function of small floats, and by how much the upper one is shifted."""
    bits, mantissa = _SMALL[choice.get("small", "e2m1x2")]
    return f"{bits}, {mantissa}, {int('relu' in choice)})", 4 if bits == 4 else 8


def _from_small(choice: Choice, x: list[str]) -> str:
    ending, step = _ending(choice)
    return f"f16x2_of_small({x[0]}, {step}, {ending}"


def _to_small(choice: Choice, high: str, low: str) -> str:
    ending, step = _ending(choice)
    return f"(uint{2 * step}_t)(small_of_f64({high}, {ending} << {step} | small_of_f64({low}, {ending})"


def _small_of_halves(choice: Choice, x: list[str]) -> str:
    high, low = (f"f32_of_f16((uint16_t)({x[0]} >> {shift}))" for shift in (16, 0))
    return _to_small(choice, high, low)


def _to_scale(choice: Choice, high: str, low: str) -> str:
    ending = f"{int(choice['outward'] == 'rp')}, {int('satfinite' in choice)})"
    return f"(uint16_t)(scale_of_f32({high}, {ending} << 8 | scale_of_f32({low}, {ending})"


def _scale_of_halves(choice: Choice, x: list[str]) -> str:
    high, low = (f"f32_of_bf16((uint16_t)({x[0]} >> {shift}))" for shift in (16, 0))
    return _to_scale(choice, high, low)


RULES: Mapping[str, Rule] = {
    "cvt[.irnd][.rnd][.ftz][.sat].dst.src": _convert,
    "cvt.nearzero.relu.dst16.f32": _to_half,
    "cvt.nearzero[.relu].packed.f32": _to_pair,
    **{f"cvt.rn[.relu].f16x2.{kind}": _from_small for kind in ("small", "e2m1x2")},
    **{f"cvt.rn.satfinite[.relu].{kind}.f16x2": _small_of_halves for kind in ("small", "e2m1x2")},
    **{
        f"cvt.rn.satfinite[.relu].{kind}.f32": lambda choice, x: _to_small(choice, x[0], x[1])
        for kind in ("small", "e2m1x2")
    },
    "cvt.outward[.satfinite].ue8m0x2.f32": lambda choice, x: _to_scale(choice, x[0], x[1]),
    "cvt.outward[.satfinite].ue8m0x2.bf16x2": _scale_of_halves,
    "cvt.rn.bf16x2.ue8m0x2": lambda _, x: f"bf16x2_of_scales({x[0]})",
    "cvt.rna.tf32.f32": lambda _, x: f"tf32_of_f32({x[0]})",
}
