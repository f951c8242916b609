"""All benchmarks, as a table and as dated JSON."""

from benchmarks import engines, startup
from benchmarks.measure import save

if __name__ == "__main__":
    results = {"startup": startup.run(), "engines": engines.run()}
    for name, value in results["startup"]["seconds"].items():
        print(f"{name:<34}{value:8.3f} s")
    print(f"{'a million clients, peak':<34}{results['startup']['million_clients_peak_mb']:8.0f} MB")
    for name, value in results["engines"]["times_plain"].items():
        print(f"{name:<34}{value:8.2f} times the plain loop")
    print(f"written to {save(results)}")
