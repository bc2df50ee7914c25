"""How a command ends: exit code and at most one line on stderr.

Invariant: a user's mistake never shows a traceback; a mistake of ours always does.
"""

import argparse
import os
import sys
from collections.abc import Callable
from typing import NoReturn

from kube.errors import ConfigError, KubeError, Unauthorized, Unreachable

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

# What the server's or the network's own words leave open.
_ADVICE = (
    (Unauthorized, ": the API server does not take these credentials; renew the kubeconfig's user"),
    (Unreachable, "; check that the API server runs and that the kubeconfig names its address"),
)


class ArgumentParser(argparse.ArgumentParser):
    """Tells a wrong use as every other mistake is told: in one line, without the whole usage."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see `{self.prog} --help`")


def run_command(main: Callable[[], int]) -> NoReturn:
    """Run `main` and exit with its code; KubeError exits 1, ConfigError 2, Ctrl-C 130."""
    try:
        code = main()
        sys.stdout.flush()
    except ConfigError as error:
        print_error(error)
        code = EXIT_USAGE
    except KubeError as error:
        print_error(error)
        code = EXIT_FAILED
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output (`| head`) has gone; nothing may be flushed into it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_FAILED
    sys.exit(code)


def print_error(error: Exception) -> None:
    """`error: …` on stderr, in one line that says what to do."""
    advice = next((text for kind, text in _ADVICE if isinstance(error, kind)), "")
    sys.stderr.write(f"error: {' '.join(str(error).split())}{advice}\n")
