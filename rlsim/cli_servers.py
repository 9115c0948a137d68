"""`rlsim servers`: what OpenAI-compatible servers offer a live run."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from rlsim.cli_options import AsJson


def servers(
    urls: Annotated[list[str], typer.Argument(help="Base URLs: http://HOST:PORT/v1.", show_default=False)],
    model: Annotated[str, typer.Option(help="Name of the model there; default: the first listed.")] = "",
    api_key_env: Annotated[str, typer.Option(help="Environment variable that holds the servers' key.")] = "",
    allow_remote: Annotated[bool, typer.Option(help="Accept servers on other machines.")] = False,
    as_json: AsJson = False,
) -> None:
    """Ask servers what they offer a live run; each makes about thirty calls of up to sixteen tokens."""
    import asyncio

    from rlsim.live.servers.probe import probe_all
    from rlsim.live.servers.settings import server_settings

    found = asyncio.run(probe_all(server_settings(urls, model, api_key_env, allow_remote)))
    if as_json:
        sys.stdout.write(json.dumps([dict(one.rows()) for one in found], indent=1) + "\n")
        return
    for one in found:
        sys.stdout.write("".join(f"{what:<23}{told}\n" for what, told in one.rows()) + "\n")
