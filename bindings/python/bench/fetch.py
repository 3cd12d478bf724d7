"""Gets a URL, however long there is no network, and prints when its answer was there: `cargo xtask bindings outage`."""

import sys
import time

import towpath

with towpath.Client() as client:
    client.get(sys.argv[1]).raise_for_status()
    print(f"{time.time():.6f}", flush=True)
