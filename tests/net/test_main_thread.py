"""Work that the event loop's thread hands to the main thread."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from concurrent.futures import Future

from fedge.net.main_thread import MainThread

PATIENCE_S = 5.0


class Model:
    """A large object."""


def test_main_thread_keeps_no_reference_to_finished_work() -> None:
    main, done = MainThread(), Future[None]()
    found: list[object] = []

    async def use() -> None:
        model = Model()
        kept = weakref.ref(model)

        def work(model: Model = model) -> str:
            return type(model).__name__

        found.append(await main.call(work))
        del model, work
        end = time.monotonic() + PATIENCE_S
        while kept() is not None and time.monotonic() < end:
            await asyncio.sleep(0.01)
        found.append(kept())

    def network() -> None:
        asyncio.run(use())
        done.set_result(None)

    thread = threading.Thread(target=network)
    thread.start()
    main.work_until(done)
    thread.join()
    assert found == ["Model", None]
