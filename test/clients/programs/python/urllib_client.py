# urllib of the standard library: argv is column, base URL, file to upload.
import json, os, sys, urllib.request

column, base, path = sys.argv[1:4]
key = os.environ["API_KEY"]


def call(url, method="GET", data=None, headers={}):
    request = urllib.request.Request(base + url, data=data, headers=headers, method=method)
    return urllib.request.urlopen(request, timeout=60)


if column == "header":
    print(call("/echo", headers={"Authorization": "Bearer " + key}).read().decode())
elif column == "body":
    data = json.dumps({"key": key}).encode()
    print(call("/echo", "POST", data, {"Content-Type": "application/json"}).read().decode())
elif column == "upload":
    with open(path, "rb") as file:
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(os.path.getsize(path))}
        print(call("/upload", "PUT", file, headers).read().decode())
elif column == "stream":
    for line in call("/events"):
        print(line.decode().rstrip(), flush=True)
