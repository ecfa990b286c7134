# grpcio without generated code: messages are bytes. argv is the mode, base URL, file to upload.
import os, queue, sys
from urllib.parse import urlsplit
import grpc

mode, base, path = sys.argv[1:4]
metadata = (("authorization", "Bearer " + os.environ["API_KEY"]),)
channel = grpc.secure_channel(urlsplit(base).hostname + ":443", grpc.ssl_channel_credentials())


def status_of(work):
    try:
        work()
        return "OK"
    except grpc.RpcError as error:
        return f"{error.code().name} {error.details()}"


def call_unary(name, **options):
    return channel.unary_unary("/keyveil.Test/" + name)(b"hello", metadata=metadata, **options)


def begin(method):
    requests = queue.SimpleQueue()
    call = channel.stream_stream("/keyveil.Test/" + method)(iter(requests.get, None), metadata=metadata)
    return requests, call


if mode == "header":
    print(call_unary("Unary").decode())
    print(status_of(lambda: call_unary("Fail")))
elif mode == "upload":
    with open(path, "rb") as file:
        chunks = iter(lambda: file.read(65536), b"")
        print(channel.stream_unary("/keyveil.Test/Upload")(chunks, metadata=metadata).decode())
elif mode == "bidi":
    requests, call = begin("Bidi")
    count = 0
    requests.put(b"message 0")
    for message in call:
        assert message == b"message %d" % count, message
        count += 1
        requests.put(b"message %d" % count if count < 10000 else None)
    print("begin", dict(call.initial_metadata())["x-begin"])
    print(f"{count} messages, {call.code().name} {call.details()}, end {dict(call.trailing_metadata())['x-end']}")
elif mode == "cancel":
    requests, call = begin("Hold")
    requests.put(b"message")
    next(call)
    call.cancel()
    requests.put(None)
    print(call.code().name)
elif mode == "deadline":
    print(status_of(lambda: call_unary("Hang", timeout=1)))
