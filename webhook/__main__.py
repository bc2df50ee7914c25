"""`python -m webhook`: serve admission, explain a file, print the entry for fenced deleters."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from kube.console import ArgumentParser, run_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.config import WebhookConfig

_FLAGS = (
    "host",
    "port",
    "health_port",
    "kubeconfig",
    "namespace",
    "cert_dir",
    "port_file",
    "log_level",
    "log_format",
    "drain_seconds",
    "stop_seconds",
)


def main() -> NoReturn:
    """Entry point of `podstamp-webhook`."""
    run_command(lambda: run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Do what `arguments` say; returns the exit code."""
    parsed = _parser().parse_args(arguments)
    code: int = parsed.command(parsed)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = ArgumentParser(
        prog="python -m webhook",
        description="Admission of pods that serve LLMs: stamps them and refuses clashing writes.",
        epilog="Every option of `serve` may also stand in the config file (camelCase) or in the "
        "environment (PODSTAMP_HEALTH_PORT for --health-port); flags win, then the environment.",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    serve = commands.add_parser("serve", help="serve the admission webhook")
    serve.set_defaults(command=_serve)
    _add_config(serve)
    add = serve.add_argument
    add("--kubeconfig", metavar="F", help="how to reach the API server (default: the usual order)")
    add("--host", help="address to listen on (default 0.0.0.0)")
    add("--port", type=int, metavar="N", help="port of admission, 0 for a free one (default 9443)")
    add(
        "--health-port",
        type=int,
        metavar="N",
        help="plain HTTP port of /healthz, /readyz and /metrics, 0 for a free one (default 8081)",
    )
    add(
        "--cert-dir",
        metavar="D",
        help="folder with tls.crt and tls.key, read again when they change "
        "(default: certificates of our own, kept in a Secret)",
    )
    add("--namespace", metavar="NS", help="podstamp's own namespace (default podstamp-system)")
    add("--port-file", metavar="F", help="write the bound ports there, as JSON, when ready")
    add("--drain-seconds", type=float, metavar="S", help="serve on after SIGTERM (default 10)")
    add("--stop-seconds", type=float, metavar="S", help="then wait for reviews (default 15)")
    add("--log-level", choices=("debug", "info", "warning", "error"), help="(default info)")
    add("--log-format", choices=("text", "json"), help="(default text)")

    explain = commands.add_parser(
        "explain",
        help="say what admission would do to the pods of a file, without a cluster",
        description="Admission of a file without a cluster, as in an enabled namespace.",
    )
    explain.set_defaults(command=_explain)
    _add_config(explain)
    add = explain.add_argument
    add(
        "-f",
        "--filename",
        required=True,
        metavar="FILE",
        help="pods as YAML or JSON, one document or several; - for standard input",
    )
    add("--old", metavar="FILE", help="the pods as stored; makes it an UPDATE")
    add("--operation", type=str.upper, choices=("CREATE", "UPDATE", "DELETE"))
    add("--user", metavar="NAME", default="kubernetes-admin", help="who asks")
    add("--group", metavar="NAME", action="append", default=[], help="a group of the user")
    add("-o", "--output", choices=("table", "json", "yaml"), default="table")

    fenced = commands.add_parser(
        "fenced-deleters",
        help="print the webhook entry that the config's fencedDeleters need",
        description="Print, for manifests/overlays/fenced-deleters, the entry that sends the "
        "deletes of exactly the fencedDeleters of the config file to the webhook.",
    )
    fenced.set_defaults(command=_fenced_deleters)
    _add_config(fenced)
    return parser


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        metavar="F",
        default=os.environ.get("PODSTAMP_CONFIG"),
        help="webhook.yaml (also PODSTAMP_CONFIG)",
    )


def _load(parsed: argparse.Namespace) -> WebhookConfig:
    from kube.options import load_settings
    from webhook.config import WebhookConfig

    flags: dict[str, Any] = {name: getattr(parsed, name, None) for name in _FLAGS}
    return load_settings(
        WebhookConfig,
        file=Path(parsed.config) if parsed.config else None,
        environ=os.environ,
        flags=flags,
    )


def _serve(parsed: argparse.Namespace) -> int:
    import uvloop

    from kube import logs
    from webhook.serve import serve

    config = _load(parsed)
    logs.configure(level=config.log_level, format=config.log_format)
    return uvloop.run(serve(config))


def _explain(parsed: argparse.Namespace) -> int:
    from webhook import explain
    from webhook.config import admission_settings
    from webhook.documents import read_pods
    from webhook.judge import Judge

    documents = read_pods(parsed.filename)
    olds = read_pods(parsed.old) if parsed.old else None
    judge = Judge(admission_settings(_load(parsed)))
    answers = [
        explain.explain(
            asked,
            judge,
            user=parsed.user,
            groups=parsed.group,
            now_ns=time.time_ns(),
            random_bytes=os.urandom,
        )
        for asked in explain.pair_documents(documents, olds, parsed.operation)
    ]
    sys.stdout.write(explain.render(answers, parsed.output))
    return 0


def _fenced_deleters(parsed: argparse.Namespace) -> int:
    from webhook.entries import delete_entry

    sys.stdout.write(delete_entry(_load(parsed).fenced_deleters))
    return 0


if __name__ == "__main__":
    main()
