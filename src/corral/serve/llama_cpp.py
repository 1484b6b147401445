"""llama.cpp's server from the wheel xllamacpp, for nodes without the command
llama-server: `python -m corral.serve.llama_cpp --model FILE`."""

import argparse
import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def server_parameters(parameters: Any, options: argparse.Namespace) -> Any:
    """Return the wheel's parameters, set as the command line asks.

    Args:
        parameters: xllamacpp.CommonParams with its defaults.
    """
    parameters.model.path = str(options.model)
    parameters.model_alias = {options.alias}
    parameters.hostnames = [options.host]
    parameters.port = options.port
    parameters.api_keys = [options.api_key] if options.api_key else []
    parameters.n_parallel = options.parallel
    parameters.kv_unified = True  # each request may use all of the context
    parameters.n_ctx = options.ctx_size
    parameters.endpoint_metrics = True
    parameters.ui = False
    return parameters


def parsed_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m corral.serve.llama_cpp")
    parser.add_argument("--model", type=Path, required=True, help="GGUF file")
    parser.add_argument("--host", default=os.environ.get("CORRAL_HOST", "127.0.0.1"))
    parser.add_argument(
        "--port", type=int, default=int(os.environ.get("CORRAL_PORT", "8000"))
    )
    parser.add_argument("--alias", default="model", help="name of the model")
    parser.add_argument("--parallel", type=int, default=4, help="requests at once")
    parser.add_argument(
        "--ctx-size", type=int, default=0, help="tokens (default: as the model)"
    )
    parser.add_argument(
        "--api-key",
        default=os.environ.get("CORRAL_REPLICA_KEY", ""),
        help="key that requests must have",
    )
    return parser.parse_args(arguments)


def main() -> None:
    """Serve the model of the command line until the process is stopped."""
    options = parsed_options()
    if not options.model.is_file():
        sys.exit(f"error: {options.model} is not a file")
    try:
        xllamacpp: Any = import_module("xllamacpp")
    except ImportError:
        sys.exit(
            "error: neither llama-server nor the wheel xllamacpp is installed here; "
            "run: pip install xllamacpp"
        )
    stops = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)  # its threads inherit this
    server = xllamacpp.Server(server_parameters(xllamacpp.CommonParams(), options))
    print(f"serving {options.alias} on {server.listening_address}", flush=True)
    signal.sigwait(stops)


if __name__ == "__main__":
    main()
