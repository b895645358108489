"""The start of every command. Ctrl-C or SIGTERM ends Assay quietly from the first moment on.

Imports take a good part of a second, and a KeyboardInterrupt in the middle of one may come out as any error. Nothing
has been started yet, so the process ends at once.
"""

import os
import signal
import sys


def _end(*_: object) -> None:
    os.write(2, b"assay: interrupted\n")
    os._exit(130)


def main() -> int:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    heeded = [number for number, handler in before.items() if handler != signal.SIG_IGN]  # "nohup", "&"
    for number in heeded:
        signal.signal(number, _end)
    from assay import cli

    for number in heeded:
        signal.signal(number, before[number])
    return cli.main()


def netsan() -> int:
    """``run_netsan.sh``: the Network Sanitizer under its old name."""
    sys.argv.insert(1, "net")
    return main()


if __name__ == "__main__":
    sys.exit(main())
