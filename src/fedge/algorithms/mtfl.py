"""MTFL: some tensors of the model stay private to each client; any inner algorithm trains the rest.

The inner algorithm is built three times: for the whole model (run by the client), for the shared part (run by the
server, and all that travels), and for the private part (a federation of one, run on the client). Private tensors
therefore have private optimiser statistics, although this wrapper knows nothing about optimisers.
"""

from __future__ import annotations

from fedge.algorithms import one_client as alone
from fedge.algorithms.private import Private, private_part, put, take
from fedge.core.algorithm import Algorithm, Build, Context, Work
from fedge.core.drive import first_exchange
from fedge.core.errors import ConfigError
from fedge.core.layout import Kind, Layout, Tree, nest, pick


def mtfl(inner: Build, private: Private) -> Build:
    """MTFL (Mills 2023, algorithm 5) around any algorithm with one exchange per round."""

    def build(layout: Layout) -> Algorithm:
        mine, ours = private_part(layout, private)
        full, shared, own = inner(layout), inner(ours), inner(mine)
        if len(full.works) != 1:
            raise ConfigError(f"personal: needs one exchange per round; this algorithm has {', '.join(full.works)}")
        kinds: dict[str, Kind] = {"x": "params", "stats": "stats"}
        kinds |= {name: slot.kind for name, slot in full.slots.items()}

        def cut(tree: Tree, part: Layout) -> Tree:
            return {name: take(layout, value, part, kinds[name]) for name, value in tree.items()}

        def join(shared_tree: Tree, own_tree: Tree) -> Tree:
            return {name: put(layout, ours, shared_tree[name], mine, own_tree[name], kinds[name]) for name in own_tree}

        def whole(down: Tree, kept: Tree, ctx: Context) -> Tree:
            return join(down, first_exchange(own, pick("own", kept), alone.info_of_one(ctx)).down)

        def wrap(work: Work, shared_work: Work) -> Work:
            def init(down: Tree, kept: Tree, ctx: Context) -> Tree:
                return work.init(whole(down, kept, ctx), pick("kept", kept), ctx)

            def final(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
                upload, inner_kept = work.final(whole(down, kept, ctx), local, pick("kept", kept), ctx)
                reply = alone.reply_of_one(cut(upload, mine))
                state = alone.tell(own, pick("own", kept), alone.info_of_one(ctx), reply)
                trained = cut({"x": local["y"], "stats": local["stats"]}, mine)
                state |= {name: value for name, value in trained.items() if name in state}
                return cut(upload, ours), {**nest("kept", inner_kept), **nest("own", state)}

            return work._replace(init=init, final=final, codec=shared_work.codec, down_codec=shared_work.down_codec)

        def personal(variables: Tree, kept: Tree) -> Tree:
            patched = join(cut(variables, ours), own.model(pick("own", kept), cut(variables, mine)))
            return full.personal(patched, pick("kept", kept)) if full.personal else patched

        return Algorithm(
            slots=shared.slots,
            init=lambda variables: shared.init(cut(variables, ours)),
            keep=lambda variables: nest("kept", full.keep(variables)) | nest("own", own.init(cut(variables, mine))),
            works={name: wrap(work, shared.works[name]) for name, work in full.works.items()},
            round=shared.round,
            model=lambda state, variables: join(shared.model(state, cut(variables, ours)), cut(variables, mine)),
            personal=personal,
            adapt=full.adapt,
            travels=ours,
            grow=shared.grow,
        )

    return build
