# requests: argv is column, base URL, file to upload.
import os, sys
import requests

column, base, path = sys.argv[1:4]
key = os.environ["API_KEY"]

if column == "header":
    print(requests.get(base + "/echo", headers={"Authorization": "Bearer " + key}).text)
elif column == "body":
    print(requests.post(base + "/echo", json={"key": key}).text)
elif column == "upload":
    with open(path, "rb") as file:
        print(requests.put(base + "/upload", data=file).text)
elif column == "stream":
    for line in requests.get(base + "/events", stream=True).iter_lines(chunk_size=1):
        print(line.decode(), flush=True)
