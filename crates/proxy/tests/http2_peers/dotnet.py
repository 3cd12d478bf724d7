"""HttpClient of .NET, which Python loads into its process: asks at the address that is given, by prior knowledge, and
prints each story that went well. That of bodies both ways at once it has not."""

import json
import os
import sys
import tempfile

import dotnetcore2
from pythonnet import load

RUNTIME = {
    "tfm": "netcoreapp3.1",
    "framework": {"name": "Microsoft.NETCore.App", "version": "3.1.0"},
    "configProperties": {
        "System.Globalization.Invariant": True,
        "System.Net.Http.SocketsHttpHandler.Http2UnencryptedSupport": True,
    },
}

with tempfile.TemporaryDirectory() as folder:
    config = os.path.join(folder, "dotnet.runtimeconfig.json")
    with open(config, "w") as file:
        json.dump({"runtimeOptions": RUNTIME}, file)
    root = os.path.join(os.path.dirname(dotnetcore2.__file__), "bin")
    load("coreclr", runtime_config=config, dotnet_root=root)

import clr

clr.AddReference("System.Net.Http")
from System import AggregateException, Array, Byte, TimeSpan, Version
from System.Net.Http import ByteArrayContent, HttpClient, HttpCompletionOption, HttpMethod, HttpRequestMessage

CLIENT = HttpClient()
CLIENT.Timeout = TimeSpan.FromSeconds(20)
ADDRESS = sys.argv[1]


def pattern(length):
    """Each byte of a body tells where it stands."""
    return (bytes(range(251)) * (length // 251 + 1))[:length]


def asked(path, content=None, option=HttpCompletionOption.ResponseContentRead):
    method = HttpMethod.Get if content is None else HttpMethod.Post
    request = HttpRequestMessage(method, f"http://{ADDRESS}{path}")
    request.Version = Version(2, 0)
    if content is not None:
        request.Content = ByteArrayContent(Array[Byte](content))
    return CLIENT.SendAsync(request, option)


def body_of(task):
    response = task.Result
    assert (int(response.StatusCode), response.Version.ToString()) == (200, "2.0")
    return bytes(response.Content.ReadAsByteArrayAsync().Result)


def download(length):
    assert body_of(asked(f"/download/{length}")) == pattern(length)


SIZES = [0, 1, 16_384, 16_385, 3_000_000]
for size in SIZES:
    download(size)
print("downloads")
for size in SIZES:
    assert body_of(asked("/upload", pattern(size))) == str(size).encode()
print("uploads")
task = asked("/trailers")
assert body_of(task) == b"body"
trailers = {field.Key.lower(): list(field.Value) for field in task.Result.TrailingHeaders}
assert trailers == {"x-sum": ["4"]}, trailers
print("trailers")
try:
    asked("/reset").Wait()
except AggregateException:
    download(10)
else:
    raise AssertionError("it ended as if it were whole")
print("resets")
for _ in range(10):
    response = asked("/endless", option=HttpCompletionOption.ResponseHeadersRead).Result
    stream = response.Content.ReadAsStreamAsync().Result
    assert stream.Read(Array.CreateInstance(Byte, 100_000), 0, 100_000) > 0
    response.Dispose()
download(10)
print("gives_up")
tasks = [(turn * 1000, asked(f"/download/{turn * 1000}")) for turn in range(200)]
for length, task in tasks:
    assert body_of(task) == pattern(length)
print("many_at_once", flush=True)
# The runtime has threads of its own that would be waited for.
os._exit(0)
