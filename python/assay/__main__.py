"""The start of every command. Ctrl-C or SIGTERM ends Assay quietly from the first moment on.

Imports take a good part of a second, and a KeyboardInterrupt in the middle of one may come out as any error. Nothing
has been started yet, so the process ends at once and says nothing. The script ``assay`` blocks both signals while
Python itself starts; they are let through as soon as they are handled. After the end they kill, which says nothing
either.
"""

import os
import signal
import sys


def _end(*_: object) -> None:
    os._exit(130)


def main() -> int:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    heeded = [number for number, handler in before.items() if handler != signal.SIG_IGN]  # "nohup", "&"
    for number in heeded:
        signal.signal(number, _end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, before)
    try:
        from assay import cli

        for verb in cli.verbs_of(sys.argv[1:]):
            cli.load(verb)
    except Exception as error:  # a module is missing or damaged
        print(f"assay: cannot start: {type(error).__name__}: {error}; fix: make setup", file=sys.stderr)
        return 2

    def begin() -> None:
        for number in heeded:
            signal.signal(number, before[number])

    status = cli.main(begin=begin)
    for number in heeded:
        signal.signal(number, signal.SIG_DFL)
    return status


def netsan() -> int:
    """``run_netsan.sh``: the Network Sanitizer under its old name."""
    sys.argv.insert(1, "net")
    return main()


if __name__ == "__main__":
    sys.exit(main())
