"""A mounted directory as the source of the serving pair.

The content decides, not file events: a kubelet swaps a whole volume by renaming its `..data` link,
which no event on the files shows. Both files are read from one resolved directory, so that a swap
in between does not mix two pairs.
"""

from collections.abc import Callable
from pathlib import Path

from kube.clock import Clock
from kube.errors import ConfigError
from kube.logs import get_logger

log = get_logger(__name__)

CERT_FILE = "tls.crt"
KEY_FILE = "tls.key"
CA_FILE = "ca.crt"

Offer = Callable[[bytes, bytes], str | None]
"""Takes certificate and key (PEM); None: served from now on, otherwise why not."""


def read_directory(directory: Path) -> tuple[bytes, bytes]:
    """Certificate and key (PEM) of `directory`; ConfigError if a file cannot be read."""
    try:
        volume = (directory / "..data").resolve(strict=True)
    except OSError:
        volume = directory  # plain files, not a volume of a kubelet
    try:
        return (volume / CERT_FILE).read_bytes(), (volume / KEY_FILE).read_bytes()
    except OSError as error:
        name = Path(error.filename or directory).name
        raise ConfigError(
            f"{directory / name}: {error.strerror or error}; "
            f"write {CERT_FILE} and {KEY_FILE} there with "
            f"`python -m certs issue --cert-dir {directory}`"
        ) from None


async def watch_directory(
    directory: Path, offer: Offer, *, clock: Clock, period_s: float = 2.0
) -> None:
    """Offer the pair in `directory` whenever its content changes, until cancelled.

    A pair that was refused is offered again: its dates may have come, or the other one expired.
    Files that cannot be read are told once and looked at again after `period_s`.
    """
    taken: tuple[bytes, bytes] | None = None
    unreadable: str | None = None
    while True:
        try:
            pair = read_directory(directory)
            unreadable = None
        except ConfigError as error:
            if str(error) != unreadable:
                unreadable = str(error)
                log.warning("cannot read the certificate files", error=unreadable)
        else:
            if pair != taken and offer(*pair) is None:
                taken = pair
        await clock.sleep(period_s)
