from fedge.runs.pace import Pace


def test_saves_at_the_interval() -> None:
    pace = Pace(every=3)
    assert [r for r in range(1, 11) if pace.due(r, seconds_run=float(r), seconds_saving=0.0)] == [3, 6, 9]


def test_first_checkpoint_is_due_whatever_its_cost() -> None:
    pace = Pace(every=1)
    assert pace.due(1, seconds_run=1.0, seconds_saving=1.0)
    assert not pace.due(2, seconds_run=2.0, seconds_saving=1.0)


def test_waits_until_saving_is_within_its_share() -> None:
    # A round takes 1 s and a checkpoint 0.1 s, so 5% allows for one in two rounds:
    # after the first one, 0.1 s is 5% of 2 s; after the second, 0.2 s is 5% of 4 s; and so on.
    pace, saving, saved = Pace(every=1), 0.0, []
    for r in range(1, 9):
        if pace.due(r, seconds_run=float(r), seconds_saving=saving):
            saving += 0.1
            saved.append(r)
    assert saved == [1, 2, 4, 6, 8]


def test_share_is_configurable() -> None:
    pace = Pace(every=1, share=0.5)
    assert pace.due(1, seconds_run=1.0, seconds_saving=0.0)
    assert pace.due(2, seconds_run=2.0, seconds_saving=1.0)
    assert not pace.due(3, seconds_run=3.0, seconds_saving=1.6)


def test_continues_from_the_resumed_round() -> None:
    pace = Pace(every=10, last=40)
    assert [r for r in range(41, 62) if pace.due(r, seconds_run=1.0, seconds_saving=0.0)] == [50, 60]
