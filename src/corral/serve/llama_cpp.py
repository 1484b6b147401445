"""llama.cpp's server from the wheel xllamacpp, for nodes without the command
llama-server: `python -m corral.serve.llama_cpp --model FILE`."""

import argparse
import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def server_parameters(
    parameters: Any,
    options: argparse.Namespace,
    make_adapter: Callable[[str, float], Any] | None = None,
) -> Any:
    """Return the wheel's parameters, set as the command line asks.

    Args:
        parameters: xllamacpp.CommonParams with its defaults.
        make_adapter: Makes the wheel's description of a LoRA adapter from its path and
            its scale.
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
    parameters.sleep_idle_seconds = options.sleep_idle_seconds
    if options.lora and make_adapter is not None:
        # with a scale of 0 they are applied only to requests that name them
        parameters.lora_adapters = [
            make_adapter(str(path), 0.0) for path in options.lora
        ]
    return parameters


def parsed_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m corral.serve.llama_cpp")
    parser.add_argument("--model", type=Path, required=True, help="GGUF file")
    parser.add_argument("--host", default=os.environ.get("CORRAL_HOST", "127.0.0.1"))
    parser.add_argument(
        "--port", type=int, default=int(os.environ.get("CORRAL_PORT", "8000"))
    )
    parser.add_argument(
        "--lora",
        type=Path,
        action="append",
        default=[],
        help="GGUF file of an adapter, applied to requests that name it",
    )
    parser.add_argument("--alias", default="model", help="name of the model")
    parser.add_argument("--parallel", type=int, default=4, help="requests at once")
    parser.add_argument(
        "--ctx-size", type=int, default=0, help="tokens (default: as the model)"
    )
    parser.add_argument(
        "--sleep-idle-seconds",
        type=int,
        default=-1,
        help="release the model after N seconds without a request (default: never)",
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
    for path in (options.model, *options.lora):
        if not path.is_file():
            sys.exit(f"error: {path} is not a file")
    try:
        xllamacpp: Any = import_module("xllamacpp")
    except ImportError:
        sys.exit(
            "error: neither llama-server nor the wheel xllamacpp is installed here; "
            "run: pip install xllamacpp"
        )
    stops = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)  # its threads inherit this
    parameters = server_parameters(
        xllamacpp.CommonParams(), options, xllamacpp.CommonAdapterLoraInfo
    )
    server = xllamacpp.Server(parameters)
    print(f"serving {options.alias} on {server.listening_address}", flush=True)
    signal.sigwait(stops)


if __name__ == "__main__":
    main()
