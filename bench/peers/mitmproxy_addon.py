"""mitmproxy's part: replaces one header, and dials names under bench.test on this machine."""
import os

PLACEHOLDER = os.environ["BENCH_PLACEHOLDER"]
VALUE = os.environ["BENCH_VALUE"]


def server_connect(data):
    host, port = data.server.address[:2]
    if host.endswith(".bench.test"):
        data.server.address = ("127.0.0.1", port)


def request(flow):
    authorization = flow.request.headers.get("authorization")
    if authorization is not None:
        flow.request.headers["authorization"] = authorization.replace(PLACEHOLDER, VALUE)
