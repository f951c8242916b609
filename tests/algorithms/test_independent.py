from federation import Federation, points, slope
from fedge.algorithms.independent import Independent


def test_clients_train_alone() -> None:
    federation = Federation(Independent().build, points(0, 4), make=slope, rate=0.5, steps=2)
    federation.round()
    assert [federation.clients.kept.read(client)["x"].item() for client in (0, 1)] == [0.25, 3.25]
    federation.round(cohort=(1,))
    # client 0 was absent; client 1 continues from 3.25: 4 - 0.75/4
    assert [federation.clients.kept.read(client)["x"].item() for client in (0, 1)] == [0.25, 3.8125]


def test_the_global_model_stays_the_initial_one() -> None:
    federation = Federation(Independent().build, points(0, 4), make=slope).rounds(2)
    assert federation.state == {}
    assert federation.weight() == 1


def test_nothing_travels() -> None:
    federation = Federation(Independent().build, points(0, 4), "wire", make=slope)
    (reply,) = federation.round().replies
    assert reply.value == {}
    assert not reply.communicated


def test_users_have_their_own_models() -> None:
    federation = Federation(Independent().build, points(0, 4), make=slope, rate=0.5, steps=2).rounds(1)
    personal = federation.clients.algorithm.personal
    assert personal is not None
    own = [personal(federation.clients.network.variables, federation.clients.kept.read(client)) for client in (0, 1)]
    assert [variables["x"].item() for variables in own] == [0.25, 3.25]
