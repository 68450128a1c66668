"""Where four shards of a batch of eight may lie: host and device of each."""

from graphs.names import SHARD
from tests.rewrite.split.rules.run_rule import floats

BATCH, SHARDS, WIDTH = 8, 4, 100
TWO_HOSTS = ((0, 0), (0, 1), (1, 2), (1, 3))
THREE_HOSTS = ((0, 0), (1, 1), (2, 2), (0, 3))
SHARED = ((0, 0), (0, 1), (1, 2), (0, 0))
ONE_AND_THREE = ((0, 0), (1, 1), (0, 2), (0, 3))
IMAGES = {"x:0": floats(BATCH, WIDTH)}


def shard_of(name):
    return int(SHARD.search(name)[1])


def host_of(name):
    """Where a sum or a relay is meant to lie, of two hosts of two shards."""
    return shard_of(name) // 2
