from federation import Federation, points, slope
from fedge.algorithms.dynavg import DynAvg
from fedge.algorithms.fedavg import FedAvg
from fedge.algorithms.reduced import ByKrum, ByMean, ByMedian, ByTrimmedMean, reduced
from fedge.algorithms.scaffold import Scaffold
from fedge.core.reduce import Mean, Median

HALF = {"make": slope, "rate": 0.5, "steps": 1}
TARGETS = (-1, 1, 3, 1e6)  # one step at rate 1/2 reaches 0, 1, 2 and about 500000


def test_the_median_of_the_uploads() -> None:
    federation = Federation(reduced(FedAvg().build, ByMedian().reducer()), points(*TARGETS), **HALF)
    federation.round()
    assert federation.weight() == 1.5


def test_the_trimmed_mean_of_the_uploads() -> None:
    reducer = ByTrimmedMean(fraction=0.25).reducer()
    federation = Federation(reduced(FedAvg().build, reducer), points(*TARGETS), **HALF)
    federation.round()
    assert federation.weight() == 1.5  # (1 + 2)/2


def test_the_mean_reducer_changes_nothing() -> None:
    assert ByMean().reducer() is Mean
    plain, wrapped = (
        Federation(build, points(0, 4), **HALF).rounds(2).weight()
        for build in (FedAvg().build, reduced(FedAvg().build, ByMean().reducer()))
    )
    assert plain == wrapped


def test_every_slot_is_reduced() -> None:
    federation = Federation(reduced(Scaffold().build, Median), points(-1, 1, 30), **HALF)
    federation.round()
    assert federation.weight() == 1  # changes -1, 0 and 14.5
    assert federation.state["c"].item() == 0  # gradients 2, 0 and -29


def test_collected_uploads_are_unchanged() -> None:
    """Dynamic averaging collects all uploads and computes its own mean."""
    federation = Federation(reduced(DynAvg(delta=0).build, Median), points(0, 4), **HALF)
    federation.round()
    assert federation.weight() == 1.5


def test_krum_of_the_uploads() -> None:
    federation = Federation(reduced(FedAvg().build, ByKrum(fraction=0.25).reducer()), points(*TARGETS), **HALF)
    federation.round()
    assert federation.weight() in (0, 1, 2)  # one of four may be hostile: the nearest neighbour decides
