"""What stands in a recording in place of secret bytes: `{"shown": BEGIN, "redacted": LENGTH}`.

`shown` is what at the begin is no secret: the code of a command, the words of a line. `LENGTH` counts bytes where data
stands as hex, else characters. Nothing else is kept of them, no hash either: many a secret is short enough to be tried.
"""

from __future__ import annotations

from typing import Any, Final

from hwtool_sim.reached import Known

LEFT_OUT: Final = "left out of the recording"


def left_out(shown: str, length: int) -> dict[str, Any]:
    """What stands for bytes (in hex) or text that is left out behind a part that may be shown."""
    return {"shown": shown, "redacted": length}


def redacted(shown: dict[str, Any], known: Known) -> dict[str, Any]:
    """A transfer as the recording has it: without the bytes or the text that it sends, if they are secret."""
    if not known.sent:
        return shown
    head = known.open_bytes
    if "text" in shown:
        text: str = shown["text"]
        return shown | {"text": left_out(text[:head], len(text[head:]))}
    if "first" in shown:
        return shown | {"first": shown["first"] | {"data": left_out("", len(shown["first"]["data"]) // 2)}}
    if "data" in shown:
        data: str = shown["data"]
        return shown | {"data": left_out(data[: 2 * head], len(data[2 * head :]) // 2)}
    return shown


def fits(recorded: Any, asked: Any, unit: int = 1) -> bool:
    """Whether something asked is what was recorded; what was left out, by its length alone.

    Args:
        unit: characters of what is asked to one of the length.
    """
    match recorded, asked:
        case {"shown": str(shown), "redacted": int(length)}, str(text):
            return text.startswith(shown) and len(text) - len(shown) == unit * length
        case dict(), dict():
            same = recorded.keys() == asked.keys()
            return same and all(fits(value, asked[key], 2 if key == "data" else 1) for key, value in recorded.items())
        case _:
            return bool(recorded == asked)


def filled(shown: dict[str, Any]) -> dict[str, Any]:
    """An object with something in place of what was left out: zeros for bytes, words for a fault."""
    return {key: _filled(key, value) for key, value in shown.items()}


def _filled(key: str, value: Any) -> Any:
    match value:
        case {"shown": str(shown), "redacted": int(length)}:
            return shown + "00" * length if key == "data" else LEFT_OUT
        case dict():
            return filled(value)
        case _:
            return value
