# httpx: argv is column, base URL, file to upload; HTTP2=1 turns HTTP/2 on.
import os, sys
import httpx

column, base, path = sys.argv[1:4]
key = os.environ["API_KEY"]

with httpx.Client(http2=os.environ.get("HTTP2") == "1", timeout=60) as client:
    if column == "header":
        print(client.get(base + "/echo", headers={"Authorization": "Bearer " + key}).text)
    elif column == "body":
        print(client.post(base + "/echo", json={"key": key}).text)
    elif column == "upload":
        with open(path, "rb") as file:
            print(client.put(base + "/upload", content=file).text)
    elif column == "stream":
        with client.stream("GET", base + "/events") as response:
            for line in response.iter_lines():
                print(line.rstrip(), flush=True)
