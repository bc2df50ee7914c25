import subprocess
import sys
from collections.abc import Callable

import pytest

from kube.console import run_command
from kube.errors import ConfigError, Forbidden, KubeError, Unauthorized, Unreachable


def raising(error: BaseException) -> Callable[[], int]:
    def main() -> int:
        raise error

    return main


@pytest.mark.parametrize(
    ("main", "code", "line"),
    [
        (lambda: 0, 0, ""),
        (lambda: 1, 1, ""),
        (raising(ConfigError("a.yaml: port: no")), 2, "error: a.yaml: port: no\n"),
        (
            raising(Unreachable("no\n  answer")),
            1,
            "error: no answer; check that the API server runs and that the kubeconfig names its "
            "address\n",
        ),
        (
            raising(Unauthorized(401, message="Unauthorized")),
            1,
            "error: Unauthorized: the API server does not take these credentials; renew the "
            "kubeconfig's user\n",
        ),
        (raising(Forbidden(403, message="pods is forbidden")), 1, "error: pods is forbidden\n"),
        (raising(KubeError("x")), 1, "error: x\n"),
        (raising(KeyboardInterrupt()), 130, ""),
    ],
    ids=[
        "done",
        "failed",
        "config",
        "unreachable",
        "unauthorized",
        "forbidden",
        "other",
        "interrupted",
    ],
)
def test_a_command_ends_with_its_code_and_at_most_one_line(
    capsys: pytest.CaptureFixture[str], main: Callable[[], int], code: int, line: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        run_command(main)
    assert caught.value.code == code
    assert capsys.readouterr().err == line


def test_a_mistake_of_ours_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        run_command(raising(ZeroDivisionError()))


def test_a_reader_that_has_gone_is_no_error_to_shout_about() -> None:
    code = (
        "from kube.console import run_command\n"
        "def main():\n"
        "    for _ in range(100_000): print('line')\n"
        "    return 0\n"
        "run_command(main)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1
