"""Hold texts that try to be more than text, for every place where a name, label, message or commit is shown.

Whatever would run sets `window.pwned` or opens a dialog, so that one look afterwards tells. `hostile_document` has them
in every place of a run; `commands_in` finds in a log what a runner of CI would take for a command.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import run_documents

from pytest_bandwidth.outcomes.outcome import Outcome

_CALL = "window.pwned=1"

# Of each way to end what a text stands in, and of each way to run a script, one.
_TAGS = [
    "<script>CALL</script>",
    "<scr<script>ipt>CALL</scr</script>ipt>",
    "</SCRIPT ><script>CALL</script>",
    "<!--<script>CALL//--></script>",
    "--><script>CALL</script><!--",
    "]]><script>CALL</script>",
    "</title></style></noscript></textarea></template></td></tr></table></svg><script>CALL</script>",
    "<svg/onload=CALL>",
    "<svg><animate onbegin=CALL attributeName=x dur=1s>",
    "<svg><use href=\"data:image/svg+xml,<svg id='x' xmlns='http://www.w3.org/2000/svg'><script>CALL</script></svg>#x\">",
    "<svg><foreignObject><iframe onload=CALL></foreignObject></svg>",
    "<math><mtext><table><mglyph><style><img src=x onerror=CALL>",
    '<img src="x" onerror="CALL">',
    "<img src=`x` onerror=`CALL`>",
    "<IMG\nSRC=x:x ONERROR\t=\tCALL>",
    "<video><source onerror=CALL></video>",
    "<body onpageshow=CALL>",
    '<iframe srcdoc="<script>parent.CALL</script>"></iframe>',
    "<object data=javascript:CALL>",
    "<a href='java\nscript:CALL'>click</a>",
    "<a href=&#106;avascript:CALL>click</a>",
    "<form><button formaction=javascript:CALL autofocus>x</button></form>",
    "<input autofocus onfocus=CALL>",
    "<details open ontoggle=CALL>",
    "<div onmouseover=CALL style=position:fixed;inset:0>x</div>",
    "<style onload=CALL>*{background:url(javascript:CALL)}</style>",
    "<link rel=stylesheet href=x onerror=CALL>",
    "<base href=javascript:CALL//>",
    "<meta http-equiv=refresh content='0;url=javascript:CALL'>",
    "<meta http-equiv=Content-Security-Policy content=\"default-src * 'unsafe-inline'\"><script>CALL</script>",
    "<p id=data>CALL</p>",
    "<script src=data:text/javascript,CALL></script>",
    "<noscript><p title='</noscript><img src=x onerror=CALL>'>",
    "<plaintext>CALL",
]
_ATTRIBUTES = [
    '" autofocus onfocus="CALL" x="',
    "' onmouseover='CALL",
    "` onmouseover=`CALL",
    '"><script>CALL</script>',
    "x onmouseover=CALL",
    "java\tscript:CALL",
    "javascript://%0aCALL",
    "data:text/html,<script>CALL</script>",
]
_SCRIPTS = [
    '";CALL;//',
    "\\';CALL;//",
    "`;CALL;`",
    "${CALL}",
    "\u2028CALL;//",
    "\\u003cscript\\u003eCALL\\u003c/script\\u003e",
    "&lt;script&gt;CALL&lt;/script&gt;",
    "%3Cscript%3ECALL%3C/script%3E",
    "+ADw-script+AD4-CALL+ADw-/script+AD4-",
    "<\x00script>CALL</script>",
    "\ud800<script>CALL</script>",
]
_TEMPLATES = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{% for x in range(9) %}CALL{% endfor %}",
    "{{constructor.constructor('CALL')()}}",
    "<%= CALL %>",
    "$surface",
    "datum.row; CALL",
]
_ODD = [
    "",
    " ",
    "\n\n\n",
    "\u202egnp.tset",
    "\u2066\u202e abc \u2069",
    "a\u200bb\u200ec",
    "اختبار النطاق العريض",
    "\u0000\u0001\u001b[31mred",
    "Z̸̢͝a̶l̴g̸o̵" * 20,
    "👩‍👩‍👧‍👦",
    "x" * 10_000,
    "very " * 2_000,
    "<b>" * 3_000,
    "__proto__",
    "constructor",
    "toString",
    "../../../../etc/passwd",
    "a::b::c @ d @ e",
    "::error file=x::injected",
    "=cmd|' /C calc'!A0",
    "| pipe | `code` | [link](javascript:CALL) | ![img](https://example.invalid/x.png) |",
    "@everyone #1 https://example.invalid www.example.invalid",
]

HOSTILE: tuple[str, ...] = tuple(
    text.replace("CALL", _CALL) for text in (*_TAGS, *_ATTRIBUTES, *_SCRIPTS, *_TEMPLATES, *_ODD)
)
# GitHub's runner takes a line for a command by its begin, or by what it holds; Azure's and TeamCity's likewise.
COMMANDS = (
    "::error file=a.py::forged",
    "  ::stop-commands::forged",
    "##[error]forged",
    "##vso[task.complete]forged",
    "##VSO[task.complete]forged",
    "##teamcity[buildStatus forged]",
)
_COMMAND = re.compile(r"^\s*::|##\w*\[")
COUNTED = {
    "accesses": 8,
    "requests": 2,
    "bytes_requested": 8,
    "sectors": 4,
    "sectors_per_request": 2.0,
    "coalescing": 0.5,
}


def hostile_document(texts: Iterable[str] = HOSTILE) -> dict[str, Any]:
    """Make one result for each text, in all of its places; where the run has one place, it holds the first text."""
    chosen = list(texts)
    templates = run_documents.outcomes(12, failing=3, unjudged=3)
    results = [_poisoned(templates[i % len(templates)], text, i).to_plain() for i, text in enumerate(chosen)]
    first = chosen[0]
    plain = run_documents.run_document([])
    return {
        **plain,
        "run_id": first,
        "environment": {
            **{f"{text[:60]}{i}": text for i, text in enumerate(chosen)},
            "commit": first,
            "started_at": first,
        },
        "device": {
            **plain["device"],
            "kind": first,
            "name": first,
            "serial": first,
            "settings": dict.fromkeys(chosen, first),
            "facts": dict.fromkeys(chosen, first),
            "peak": {"gbps": 1000.0, "source": first},
        },
        "settings": {"strict": False, first: first, "list": chosen[:20]},
        "findings": [{"code": text, "text": text} for text in chosen],
        "baseline_path": first,
        "results": results,
    }


def _poisoned(outcome: Outcome, text: str, index: int) -> Outcome:
    baseline = dict(outcome.baseline or {})
    baseline |= {
        "key": text,
        "note": text,
        "xfail": text,
        "runs": [{"gbps": 500.0, "probe_gbps": 600.0, "at": text, "commit": text}] * 3,
    }
    return replace(
        outcome,
        nodeid=f"{text}::{text}",
        key=f"{text} {index}",
        label=text,
        reason_code=text,
        reason=text,
        message=text if index % 2 else None,
        file=text,
        utilization_class=text,
        regime=text,
        regime_evidence=text,
        precision=text,
        method=text,
        stop=text,
        dropped=({"round": 1, "seconds": 1.0, "code": text, "reason": text},),
        findings=({"code": text, "text": text},),
        verdict={
            **outcome.verdict,
            "rule": text,
            "why_not": [text],
            "facts": {text: text, "changes": [[text, 1, 2], [text], text, None, 3]},
        },
        baseline=baseline,
        counts={text: 3},
        resources={"registers": 3, "local_bytes": 0, "shared_bytes": 0, text: 3},
        probe={"name": text, "bytes_moved": 1000},
        detail={
            "kernel": text,
            "loads": {**COUNTED, "pattern": text, text: [text, {text: text}]},
            "lines": [{"file": text, "line": 3, "loads": {**COUNTED, "pattern": text}}],
            "arrays": [{"name": text, "nbytes": 8, "bytes_read": 8, "bytes_written": 0, "role": text}],
            "launches": [{"kernel": text, "blocks": text, "times": 2, "load_sectors": text}],
            "launch_count": text,
            "modelled_floor_seconds": {text: 1e-9},
        },
        conditions={
            "before": {"event_reasons": [text], "others": [text]},
            "after": {"sm_clock_mhz": 3, "others": [text]},
        },
        tags={"operation": text, "precision": ("fp32", "fp16")[index % 2], text: text},
    )


def commands_in(log: str) -> list[str]:
    """Return the lines that hold a command."""
    return [line for line in re.split(r"[\n\r\v\f\x85\u2028\u2029]", log) if _COMMAND.search(line)]
