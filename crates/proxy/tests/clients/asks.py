"""Python's own HTTP client and httpx, through the proxy whose address is the argument."""

import http.client
import sys

import httpx

host, port = sys.argv[1].split(":")

connection = http.client.HTTPConnection(host, int(port), timeout=20)
for turn in range(50):
    connection.request("GET", f"/{turn}")
    response = connection.getresponse()
    assert response.status == 200 and response.read() == b"ok\n", response.status
connection.request("POST", "/chunked", body=iter([b"a" * 1000] * 100), encode_chunked=True)
response = connection.getresponse()
assert response.status == 200 and response.read() == b"ok\n", response.status
connection.request("HEAD", "/")
response = connection.getresponse()
assert response.status == 200 and response.read() == b""
connection.request("GET", "/after-head")
response = connection.getresponse()
assert response.read() == b"ok\n"

with httpx.Client(base_url=f"http://{sys.argv[1]}", timeout=20) as client:
    for turn in range(50):
        response = client.get(f"/{turn}", params={"q": "ü &"})
        assert response.status_code == 200 and response.text == "ok\n"
    response = client.post("/form", data={"a": "b" * 100_000})
    assert response.status_code == 200
    response = client.put("/stream", content=(b"x" * 5000 for _ in range(50)))
    assert response.status_code == 200
    with client.stream("GET", "/streamed") as response:
        assert b"".join(response.iter_bytes()) == b"ok\n"
print("asked")
