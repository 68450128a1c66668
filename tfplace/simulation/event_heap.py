"""Binary min-heaps in preallocated arrays, for compiled code.

An event heap keeps pairs (time f8, key i8) in lexicographic order, a key heap keeps keys i8. The
caller owns the arrays and the count; each function returns the new count.
"""

from graphs.host.compiled import compiled_part
from graphs.op_graph import FloatArray, LongArray


@compiled_part
def push_event(times: FloatArray, keys: LongArray, count: int, time: float, key: int) -> int:
    """Adds (time, key) to the `count` events of a heap."""
    hole = count
    while hole > 0:
        parent = (hole - 1) >> 1
        if times[parent] < time or (times[parent] == time and keys[parent] <= key):
            break
        times[hole] = times[parent]
        keys[hole] = keys[parent]
        hole = parent
    times[hole] = time
    keys[hole] = key
    return count + 1


@compiled_part
def pop_event(times: FloatArray, keys: LongArray, count: int) -> int:
    """Removes the least event, which is times[0], keys[0]."""
    count -= 1
    time, key = times[count], keys[count]
    hole = 0
    while True:
        child = 2 * hole + 1
        if child >= count:
            break
        right = child + 1
        if right < count and (
            times[right] < times[child]
            or (times[right] == times[child] and keys[right] < keys[child])
        ):
            child = right
        if time < times[child] or (time == times[child] and key <= keys[child]):
            break
        times[hole] = times[child]
        keys[hole] = keys[child]
        hole = child
    times[hole] = time
    keys[hole] = key
    return count


@compiled_part
def push_key(keys: LongArray, first: int, count: int, key: int) -> int:
    """Adds a key to the heap that lies in keys[first : first + count]."""
    hole = count
    while hole > 0:
        parent = (hole - 1) >> 1
        if keys[first + parent] <= key:
            break
        keys[first + hole] = keys[first + parent]
        hole = parent
    keys[first + hole] = key
    return count + 1


@compiled_part
def pop_key(keys: LongArray, first: int, count: int) -> int:
    """Removes the least key, which is keys[first]."""
    count -= 1
    key = keys[first + count]
    hole = 0
    while True:
        child = 2 * hole + 1
        if child >= count:
            break
        right = child + 1
        if right < count and keys[first + right] < keys[first + child]:
            child = right
        if key <= keys[first + child]:
            break
        keys[first + hole] = keys[first + child]
        hole = child
    keys[first + hole] = key
    return count
