"""The entry point of every command. Ctrl-C, SIGTERM or SIGHUP ends Assay without a traceback at any moment.

Imports take a good part of a second, and a KeyboardInterrupt during an import can surface as another exception. During
imports no other process has been started, so a signal ends this process at once, without a message. The script
``assay`` blocks the first two while Python itself starts; ``main`` unblocks them once its handlers are set. After the
command has ended, the signals have their default action: they end the process, also without a message.
"""

import os
import signal
import sys

if not __package__:  # run as a file, without a search path
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def _exit_interrupted(*_: object) -> None:
    os._exit(130)  # EXIT_INTERRUPTED, without an import of Assay


OLDEST = (3, 11)  # pip holds others off; a copied package meets them


def main() -> int:
    if sys.version_info < OLDEST:
        here = ".".join(map(str, sys.version_info[:3]))
        print(
            f"assay: Python 3.11 or newer is needed, and this is {here}; fix: install it with a newer one",
            file=sys.stderr,
        )
        return 2
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    handled = [
        number for number, handler in handlers.items() if handler != signal.SIG_IGN
    ]  # ignored: nohup, &
    for number in handled:
        signal.signal(number, _exit_interrupted)
    # Batch systems warn of a job's end by these: their default action would end Assay before it.
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, lambda *_: None)
    # A parent that ignores or blocks SIGCHLD hands that on: then the exit code of a child is lost, or waited for.
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [*handlers, signal.SIGCHLD])
    try:
        from assay import cli

        for verb in cli.verbs_of(sys.argv[1:]):
            cli.load(verb)
    except Exception as error:  # a module is missing or damaged
        try:
            from assay.errors import REPAIR as fix
        except Exception:
            fix = "install Assay again"
        print(f"assay: cannot start: {type(error).__name__}: {error}; fix: {fix}", file=sys.stderr)
        return 2

    def begin() -> None:
        for number in handled:
            signal.signal(number, handlers[number])

    status = cli.main(begin=begin)
    for number in handled:
        signal.signal(number, signal.SIG_DFL)
    return status


def netsan() -> int:
    """The command ``run_netsan.sh``, the original name of the Network Sanitizer: runs ``assay net``."""
    sys.argv.insert(1, "net")
    return main()


if __name__ == "__main__":
    sys.exit(main())
