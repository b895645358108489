"""Decoding of JSON that others have written: engines, peers, files that were edited.

msgspec reports text that is no UTF-8 and values that are nested too deeply by other exceptions than its own. Here all
that is wrong with the bytes is one exception: msgspec.MsgspecError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec


def decoder(type_: Any) -> Callable[[bytes], Any]:
    """A function that decodes bytes as ``type_``. Raises msgspec.MsgspecError for all that is wrong with them."""
    decode = msgspec.json.Decoder(type_).decode

    def decode_bytes(content: bytes) -> Any:
        try:
            return decode(content)
        except UnicodeDecodeError as error:
            raise msgspec.DecodeError(f"not UTF-8: {error.reason}") from None
        except RecursionError:
            raise msgspec.DecodeError("nested too deeply") from None

    return decode_bytes
