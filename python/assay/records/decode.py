"""Decodes JSON from outside: of engines, peers, and files that may have been edited.

msgspec raises exceptions of other libraries for text that is not UTF-8 and for values that are nested too deeply. Here
every error is a msgspec.MsgspecError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec


def decoder(type_: Any) -> Callable[[bytes], Any]:
    """A function that decodes bytes as ``type_``. It raises msgspec.MsgspecError for invalid bytes."""
    decode = msgspec.json.Decoder(type_).decode

    def decode_bytes(content: bytes) -> Any:
        try:
            return decode(content)
        except UnicodeDecodeError as error:
            raise msgspec.DecodeError(f"not UTF-8: {error.reason}") from None
        except RecursionError:
            raise msgspec.DecodeError("nested too deeply") from None

    return decode_bytes
