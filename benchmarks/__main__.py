"""Run all benchmarks, print the results and save them as dated JSON."""

import json

from benchmarks import algorithms, codecs, edge, growth, load, messages, net_transport, speed, startup, sweep
from benchmarks.measure import save

if __name__ == "__main__":
    results: dict[str, object] = {}
    for part in (startup, speed, algorithms, growth, codecs, messages, edge, load, sweep, net_transport):
        name = part.__name__.rpartition(".")[2]
        results[name] = part.run()
        print(f"{name}: {json.dumps(results[name], indent=2)}", flush=True)
    print(f"written to {save(results)}")
