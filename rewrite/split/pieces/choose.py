"""Which variables of a step are cut, and along which axis (tensor parallelism).

A variable's read is a seed, as an input with a batch is: what reads a part of a weight makes a part
of its features, or terms of a sum over them. So column and row of Megatron's pair are found by the
rules that shards are found by. A variable that is updated with a gradient in parts is cut likewise:
the weight behind one that is cut, its bias, what an optimizer keeps for both.
"""

import dataclasses
import functools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import graphs.late_tensorflow as tf
from graphs.building.shapes import TensorProperties
from graphs.flat_graph import FlatGraph
from graphs.host.time_limit import require_time
from graphs.names import data_inputs, op_of, tensor_of
from graphs.protos import NodeDef, shape_of
from rewrite.split.constant_folding import KnownValues
from rewrite.split.decide.analysis import Answered
from rewrite.split.decide.decide import Decisions, decide
from rewrite.split.decision import Split
from rewrite.split.effects import variable_of_handle
from rewrite.split.functions import Bodies
from rewrite.split.rules.special import update_rows, update_variable
from rewrite.split.rules.table import RULES
from rewrite.split.states import Sharded, State, can_be_cut

_READ, _GATHER = "ReadVariableOp", "ResourceGather"
_MOST_ROLES = 24
"""So many kinds of variables are tried, the largest: each decides the step a few times."""


def is_update(op: str) -> bool:
    """Whether an op type changes elements of variables by those at the same place, or rows."""
    return RULES.get(op) in (update_variable, update_rows)


@dataclasses.dataclass
class Together:
    """Variables that are cut alike, since an optimizer updates them in one op."""

    handles: list[str]  # their VarHandleOps
    shape: tuple[int, ...]  # of each
    reads: list[str] = dataclasses.field(default_factory=list)
    updates: list[NodeDef] = dataclasses.field(default_factory=list)
    num_bytes: int = 0  # of all
    is_table: bool = False  # rows of it are read or changed: it is cut by columns


class PiecesChooser:
    """Finds the variables of a step that are worth cutting into a number of pieces."""

    def __init__(
        self,
        flat: FlatGraph,
        properties: TensorProperties,
        num_pieces: int,
        kept_whole: Mapping[str, str],
        bodies: Bodies | None = None,
    ) -> None:
        """Begins; `kept_whole` as `decide` has it."""
        self._flat, self._properties, self._num = flat, properties, num_pieces
        self._kept_whole, self._bodies = kept_whole, bodies or Bodies(flat.graph_def)
        self._values = KnownValues(flat, properties)
        self.groups = _groups(flat, properties)
        self._answered: Answered = {}
        self._chosen: dict[int, Sharded] = {}
        self._best: Decisions | None = None
        self._sent = 0

    def found(self) -> Decisions | None:
        """What becomes of each op then; None where no variable is worth it."""
        for role in self._roles():
            left = [number for number in role if number not in self._chosen]
            # The first layer may have another input than all others.
            if not any(self._is_taken([number]) for number in dict.fromkeys(left[:1] + left[-1:])):
                continue
            rest = [number for number in left if number not in self._chosen]
            if len(rest) == len(left) - 1:
                self._is_taken(rest)
                continue
            for number in rest:  # one cuts another: they are behind each other, as column and row
                self._is_taken([number])
        return self._best

    @property
    def is_any_free(self) -> bool:
        """Whether any weight may be cut, whatever is sent then."""
        return any(map(self._way, self.groups))

    def _is_taken(self, numbers: Sequence[int]) -> bool:
        """Cuts groups along the features that they make, if that saves more than it sends."""
        ways = {n: self._way(self.groups[n]) for n in numbers if n not in self._chosen}
        known = {n: state for n, state in ways.items() if state is not None}
        if not known:
            return False
        tried, decisions = self._with_all(self._chosen | known)
        saved = sum(self.groups[each].num_bytes for each in tried.keys() - self._chosen.keys())
        sent = sum(travelling(self._flat, decisions))
        if sent - self._sent >= saved:
            return False
        self._chosen, self._best, self._sent = tried, decisions, sent
        return True

    def _with_all(self, chosen: Mapping[int, Sharded]) -> tuple[dict[int, Sharded], Decisions]:
        """With all that is read, or updated, in parts then."""
        chosen = dict(chosen)
        while True:
            decisions = self._decided(chosen)
            more = {
                number: state
                for number, group in enumerate(self.groups)
                if number not in chosen and (state := self._wanted_of(group, decisions))
            }
            if not more:
                return chosen, decisions
            chosen |= {n: self._narrower(self.groups[n], state) for n, state in more.items()}

    def _narrower(self, group: Together, wanted: Sharded) -> Sharded:
        """Along the features that it makes, where those are more than what they are made of.

        Then it is less to join what it reads than to send sums of all that it makes.
        """
        more = 0
        for user, position in self._readers(group):
            node = self._flat.nodes[user]
            if node.op in _MAKES_FEATURES and position == 1:
                is_summed = (wanted.axis == len(group.shape) - 1) == _swaps(node)
                made = self._properties.num_bytes(f"{user}:0")
                read = self._properties.num_bytes(tensor_of(data_inputs(node)[0]))
                more += made - read if is_summed else read - made
        return (more > 0 and self._way(group)) or wanted

    def _decided(self, chosen: Mapping[int, Sharded]) -> Decisions:
        require_time()
        pieces = {handle: state for n, state in chosen.items() for handle in self.groups[n].handles}
        return decide(
            self._flat, self._properties, self._num, {}, self._kept_whole,
            bodies=self._bodies, values=self._values, pieces=pieces, answered=self._answered,
        )  # fmt: skip

    def _wanted_of(self, group: Together, decisions: Decisions) -> Sharded | None:
        """How parts of a group are read, or how what it is updated with is cut; None for whole."""
        states = [self._made_in_parts(t, decisions) for n in group.updates for t in data_inputs(n)]
        for user, position in self._readers(group):
            answer = decisions.answer_of_op[user]
            states += [answer.inputs[position]] if isinstance(answer, Split) else []
        wanted = [state for state in states if isinstance(state, Sharded)]
        wanted = [state for state in wanted if state.axis or not group.is_table]
        return next((s for s in wanted if can_be_cut(group.shape, s, self._num)), None)

    def _made_in_parts(self, name: str, decisions: Decisions) -> State | None:
        """How a tensor is cut that an op with copies makes."""
        tensor = tensor_of(name)
        is_made = isinstance(decisions.answer_of_op[op_of(tensor)], Split)
        return decisions.state_of_tensor[tensor] if is_made else None

    def _roles(self) -> Sequence[Sequence[int]]:
        """The largest groups in the order of their reads; those of one name and shape together."""
        place = {node.name: at for at, node in enumerate(self._flat.graph_def.node)}

        def first_use(number: int) -> int:
            return min((place[u] for u, _ in self._readers(self.groups[number])), default=-1)

        roles: dict[tuple[str, tuple[int, ...]], list[int]] = {}
        for number in sorted(range(len(self.groups)), key=first_use):
            group = self.groups[number]
            name = re.sub(r"_?\d+", "", group.handles[0])
            roles.setdefault((name, group.shape), []).append(number)
        held = {role: sum(self.groups[n].num_bytes for n in ns) for role, ns in roles.items()}
        large = {*sorted(roles, key=held.__getitem__)[-_MOST_ROLES:]}
        return [numbers for role, numbers in roles.items() if role in large]

    def _readers(self, group: Together) -> Iterator[tuple[str, int]]:
        """(op, position) of what takes a group's values, or these in another dtype."""
        tensors = [f"{read}:0" for read in group.reads]
        for tensor in tensors:
            for user, position in self._users[tensor]:
                if self._flat.nodes[user].op in ("Cast", "Identity"):
                    tensors.append(f"{user}:0")
                else:
                    yield user, position

    def _way(self, group: Together) -> Sharded | None:
        """Along the features that it makes; where these are taken apart into gates, within each."""
        for user, position in self._readers(group):
            node = self._flat.nodes[user]
            if node.op in _MAKES_FEATURES and position == 1:
                axis = len(group.shape) - 1 - _swaps(node)
                size, outer = group.shape[axis], self._gates(user)
                is_even = size % (outer * self._num) == 0
                return Sharded(axis, outer, size // (outer * self._num)) if is_even else None
        is_table = group.is_table or any(
            position == 0 and self._flat.nodes[user].op == "GatherV2"
            for user, position in self._readers(group)
        )
        if is_table and len(group.shape) > 1 and group.shape[-1] % self._num == 0:
            return Sharded(len(group.shape) - 1, 1, group.shape[-1] // self._num)
        return None

    def _gates(self, op: str) -> int:
        """Into how many equal parts the features that an op makes are split."""
        for _ in range(4):
            for user, _ in self._users[f"{op}:0"]:
                node = self._flat.nodes[user]
                if node.op == "Split":
                    return int(node.attr["num_split"].i)
            after = [u for u, _ in self._users[f"{op}:0"] if self._flat.nodes[u].op in _ADDS]
            if not after:
                break
            op = after[0]
        return 1

    @functools.cached_property
    def _users(self) -> Mapping[str, Sequence[tuple[str, int]]]:
        users: dict[str, list[tuple[str, int]]] = defaultdict(list)
        for node in self._flat.graph_def.node:
            for position, name in enumerate(data_inputs(node)):
                users[tensor_of(name)].append((node.name, position))
        return users


_MAKES_FEATURES = frozenset({"MatMul", "BatchMatMulV2", "Conv1D", "Conv2D", "Conv3D", "Einsum"})
_SWAPS = ("transpose_b", "adj_y")
_ADDS = frozenset({"BiasAdd", "Add", "AddV2", "Identity"})


def _swaps(node: NodeDef) -> bool:
    return any(node.attr[key].b for key in _SWAPS if key in node.attr)


def _groups(flat: FlatGraph, properties: TensorProperties) -> list[Together]:
    """The variables that may be cut, those that are read first first."""
    fetched = {op_of(fetch) for fetch in flat.fetches if ":" in fetch}
    variables = {node.name: node for node in flat.graph_def.node if node.op == "VarHandleOp"}
    times = Counter(map(variable_of_handle, variables.values()))
    refused = {name for name, node in variables.items() if times[variable_of_handle(node)] > 1}
    group_of: dict[str, Together] = {}
    for node in flat.graph_def.node:
        handles = [op_of(name) for name in data_inputs(node) if op_of(name) in variables]
        is_free = node.name not in flat.unit_of_node and node.name not in fetched
        is_row = node.op == _GATHER or RULES.get(node.op) is update_rows
        if handles and is_update(node.op) and not is_row:
            # A size that isn't known may be that of a piece.
            own = shape_of(variables[handles[0]].attr["shape"].shape)
            shapes = {properties.shape(n) for n in data_inputs(node) if op_of(n) not in handles}
            is_free &= shapes <= {own, ()}
        if not (node.op == _READ or is_row or is_update(node.op)) or not is_free:
            refused.update(handles)
            continue
        for handle in handles:
            shape = shape_of(variables[handle].attr["shape"].shape) or ()
            group = group_of.setdefault(handle, Together([handle], shape))
            first = group_of[handles[0]]
            if group is not first:
                first.handles += group.handles
                first.reads += group.reads
                first.updates += group.updates
                first.is_table |= group.is_table
                group_of.update(dict.fromkeys(group.handles, first))
        if handles:
            group_of[handles[0]].is_table |= is_row
        if handles and node.op == _READ:
            group_of[handles[0]].reads.append(node.name)
        elif handles and node.op != _GATHER:
            group_of[handles[0]].updates.append(node)
    kept = []
    for group in {id(each): each for each in group_of.values()}.values():
        shapes = {shape_of(variables[handle].attr["shape"].shape) for handle in group.handles}
        is_alike = shapes == {group.shape} and min(group.shape, default=0) > 0
        if is_alike and refused.isdisjoint(group.handles):
            dtype = variables[group.handles[0]].attr["dtype"].type
            held = math.prod(group.shape) * tf.as_dtype(dtype).size
            group.num_bytes = held * len(group.handles) * bool(group.reads or group.is_table)
            kept.append(group)
    return kept


def travelling(flat: FlatGraph, decisions: Decisions) -> list[int]:
    """Bytes of each tensor that is joined, summed or cut, but for what no op makes."""
    seen: dict[tuple[str, object], int] = {}
    for node in flat.graph_def.node:
        if is_update(node.op):
            continue
        answer = decisions.answer_of_op[node.name]
        for position, name in enumerate(data_inputs(node)):
            tensor = tensor_of(name)
            own = decisions.state_of_tensor[tensor]
            wanted = answer.inputs[position] if isinstance(answer, Split) else None
            is_made = flat.nodes[op_of(tensor)].op not in (_READ, "Const", "VarHandleOp")
            is_whole_made = not isinstance(decisions.answer_of_op[op_of(tensor)], Split)
            if is_made and wanted != own and not (wanted is None and is_whole_made):
                seen[tensor, wanted] = decisions.properties.num_bytes(tensor)
    return [*seen.values()]
