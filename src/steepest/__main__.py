"""`steepest` and `python -m steepest`: the command line, and what only a process of our own may do with signals.

A mapped file that another program cuts off ends the process with a sentence. While modules are imported, Ctrl-C ends
it at once: as an exception it would pass through the import of NumPy or Arrow, which replace it by an error of their
own, and nothing is open then that would have to be closed.
"""

import os
import sys


def main() -> int:
    """Runs the command of this process; returns the exit status."""
    try:
        import signal

        usual = signal.getsignal(signal.SIGINT)
        if usual is signal.default_int_handler:  # otherwise the signal is ignored, as in jobs of a script
            signal.signal(signal.SIGINT, _end)
    except KeyboardInterrupt:
        _end()
    from steepest.cli import main as run

    def ready() -> None:
        from steepest.kernels import end_on_lost_pages

        end_on_lost_pages()
        signal.signal(signal.SIGINT, usual)
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, interrupt)

    status = run(ready=ready)
    # Without the ends of libraries and threads: that of Arrow crashes if memory ran out when it began, and a thread
    # that is still in native code when Python ends aborts the process.
    if status not in (0, 2):
        try:
            sys.stdout.flush()
        finally:
            os._exit(status)
    return status


def interrupt(number: int, _: object) -> None:
    """Ends the command as Ctrl-C does: unfinished files are removed; the exit status shows the signal."""
    raise KeyboardInterrupt(number)


def _end(*_: object) -> None:
    try:
        os.write(2, b"steepest: interrupted; nothing was overwritten\n")
    finally:
        os._exit(130)


if __name__ == "__main__":
    sys.exit(main())
