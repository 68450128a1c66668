"""The numbers of each shard, which the functions of a step of any batch size are given."""

from __future__ import annotations

import numpy as np

from rewrite.split.body_shapes import NUMBERS
from rewrite.split.node_writer import NodeWriter
from rewrite.split.shard_shapes import OpenShapes, ShardShapes


class ShardNumbers:
    """The numbers of each shard in the main graph of a step that takes any batch size."""

    def __init__(self, writer: NodeWriter, shapes: ShardShapes, num_shards: int):
        self._writer, self._shapes, self._num_shards = writer, shapes, num_shards
        self._made = ""

    def of_shard(self, shard: int) -> str | None:
        """An i4[3]; None where all is known beforehand."""
        if not isinstance(self._shapes, OpenShapes):
            return None
        if not self._made:
            self._made = self._make(self._shapes.cut_sizes(1))
        return f"{self._made}:{shard}"

    def _make(self, sizes: str) -> str:
        writer = self._writer
        first = writer.shared_const(np.array(0, np.int32))
        batch = writer.op("Sum", "split/numbers/batch", [sizes, first], T=np.int32, Tidx=np.int32)
        rest = writer.op("Sub", "split/numbers/others", [batch, sizes], T=np.int32)
        before = writer.node(
            "Cumsum", writer.free_name("split/numbers/before"), [sizes, first], T=np.int32,
            Tidx=np.int32,
        )  # fmt: skip
        before.attr["exclusive"].b = True
        rows = [sizes, rest, f"{before.name}:0"]
        packed = writer.node("Pack", writer.free_name("split/numbers"), rows, T=np.int32)
        packed.attr["N"].i = NUMBERS
        name = writer.free_name("split/numbers/of_shard")
        parts = writer.node("Unpack", name, [f"{packed.name}:0"], T=np.int32)
        parts.attr["axis"].i, parts.attr["num"].i = 1, self._num_shards
        return name
