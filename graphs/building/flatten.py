"""Opens function calls: makes a graph of single ops of a run graph with a function library.

PartitionedCall, StatefulPartitionedCall and calls by function name are replaced by the body of
what they call, recursively. An op of a body is named by its call path, "call/inner/op"; by
"call_/inner/op" where an op beside the call has such a name. conditionals.py opens conditionals.
What can't be placed op by op stays one unit: While, other conditionals, jit_compile calls, and v1
loops (see frames.py).

Two no-ops per call keep the meaning of control edges to and from calls: "call/input_control" runs
before the body, "call/output_control" after its side effects. A call whose outputs are used runs
its side effects too, so its "call/output_control" joins the fetches. In a branch of a conditional,
which may not run, it joins the conditional's side effects instead.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from graphs import op_types
from graphs.building.conditionals import boundary_names, branches_of
from graphs.building.frames import frame_units
from graphs.building.open_calls import CallOpener
from graphs.building.raw_node import NOT_OF_THE_MODEL, RawNode, no_op
from graphs.errors import ModelError
from graphs.flat_graph import FlatGraph
from graphs.function_library import library_of, reached_functions
from graphs.graph_edges import edges_between, in_order
from graphs.graph_view import GraphView
from graphs.names import beside, op_of, with_index
from graphs.protos import GraphDef, Library, NodeDef, placeholder
from graphs.source_model import TensorSpec


def flatten(
    graph_def: GraphDef,
    feeds: Sequence[TensorSpec],
    fetches: Sequence[str],
    open_conditionals: bool = True,
) -> FlatGraph:
    """Opens all function calls of a run and prunes what the run does not need.

    Args:
      feeds: fed tensors of the run graph.
      fetches: tensors "op:i" and ops "op" of the run graph.
      open_conditionals: whether conditionals that TensorFlow lowers are opened, too.

    Raises:
      FetchError: a feed or fetch is not in the graph.
      ModelError: dangling inputs, a cycle, recursion, or an op that TensorFlow doesn't know.
    """
    library = library_of(graph_def)
    opener = CallOpener(library, open_conditionals)
    view = GraphView(graph_def)
    for spec in feeds:
        view.check_tensor(spec.tensor, "feed")
    fed = {with_index(spec.tensor) for spec in feeds}
    reached = view.ancestors(fetches, {op_of(tensor) for tensor in fed if tensor.endswith(":0")})
    opener.open_main([node for node in graph_def.node if node.name in reached])
    linker = _Linker(opener, feeds)
    linker.link(fetches)
    return linker.flat_graph(library, graph_def)


class _Linker:
    """Connects opened nodes, backwards from the fetches, so that only what runs is kept.

    Attributes:
      opener: the nodes, and the names that stand for outputs and side effects of calls.
      feeds: what the run is fed.
      fed: the fed tensors.
      fetches: the fetches by their flat names; the values are None.
      inputs_of: {op that runs: its flat input tensors, as a NodeDef has them}.
      controls_of: {op that runs: the flat ops that it waits for}.
      named: {tensor as its reader has it: the flat one as a NodeDef has it}.
      pending: ops that run and whose inputs are still to be resolved.
    """

    def __init__(self, opener: CallOpener, feeds: Sequence[TensorSpec]):
        self.opener = opener
        self.feeds = feeds
        self.fed = {with_index(spec.tensor) for spec in feeds}
        self.fetches: dict[str, None] = {}
        self.inputs_of: dict[str, list[str]] = {}
        self.controls_of: dict[str, list[str]] = {}
        self.named: dict[str, str] = {}
        self.pending: list[str] = []

    def link(self, fetches: Sequence[str]) -> None:
        """Finds everything that `fetches` need."""
        for fetch in fetches:
            self.fetches[self._tensor(fetch) if ":" in fetch else self._control(fetch)] = None
        while self.pending:
            name = self.pending.pop()
            raw = self.opener.raw.get(name)
            if raw is None:
                raise ModelError(
                    f"reading the graph: op {name!r} is used but not defined; the model is "
                    "damaged or was cut, save it again"
                )
            cut = f"{name}:0" in self.fed and raw.node.op not in op_types.MUST_BE_FED
            inputs = [] if cut else [self._input(tensor) for tensor in raw.inputs]
            controls = [] if cut else [self._control(op) for op in raw.controls]
            self.inputs_of[name] = inputs
            self.controls_of[name] = list(dict.fromkeys(controls))

    def _input(self, tensor: str) -> str:
        """The same as a NodeDef has it: "op" for "op:0"."""
        name = self.named.get(tensor)
        if name is None:
            name = self.named[tensor] = self._tensor(tensor).removesuffix(":0")
        return name

    def _tensor(self, tensor: str) -> str:
        """The flat tensor that a name stands for; it is needed from now on."""
        tensor = with_index(tensor)
        while tensor in self.opener.alias and tensor not in self.fed:
            self._run_call(tensor.rpartition(":")[0])
            tensor = with_index(self.opener.alias[tensor])
        self._need(tensor.rpartition(":")[0])
        return tensor

    def _control(self, op: str) -> str:
        """The flat op to wait for where a name stands for an op or a call."""
        if op in self.opener.call_outputs:
            return self._run_call(op) or self._output_control(op)
        self._need(op)
        return op

    def _run_call(self, call: str) -> str:
        """Makes the side effects of a call part of the run; the op to wait for, or empty."""
        if not self.opener.side_effects.get(call):
            return ""
        control = self._output_control(call)
        conditional = self.opener.conditional_of[call]
        if conditional:
            self._run_with(conditional, control)
        else:
            self.fetches[control] = None
        return control

    def _run_with(self, conditional: str, control: str) -> None:
        """Makes an op in a branch a side effect of its conditional.

        The op can't be fetched: in a run that takes another branch it is dead, and so would be
        everything that waits for it, except a Merge.
        """
        executed = f"{conditional}/branch_executed"
        if control not in self.opener.raw[executed].controls:
            self.opener.raw[executed].controls.append(control)
            if control not in self.controls_of.get(executed, [control]):  # resolved already
                self.controls_of[executed].append(control)
        self.opener.side_effects[conditional] = [executed]
        self._run_call(conditional)

    def _output_control(self, call: str) -> str:
        """The no-op that runs after a call, which is made where there is none yet."""
        path = self._name_of_output_control(call)
        if path not in self.opener.raw:
            effects = list(self.opener.side_effects.get(call, ()))
            effects += self.opener.waits_of_empty.get(call, ())
            producers = [
                with_index(tensor).rpartition(":")[0] for tensor in self.opener.call_outputs[call]
            ]
            self.opener.raw[path] = RawNode(
                no_op(path), [], list(dict.fromkeys(effects + producers)), NOT_OF_THE_MODEL, ""
            )
        self._need(path)
        return path

    def _name_of_output_control(self, call: str) -> str:
        return self.opener.output_control.get(call, f"{call}/output_control")

    def _need(self, name: str) -> None:
        if name not in self.inputs_of:
            self.inputs_of[name] = []
            self.controls_of[name] = []
            self.pending.append(name)

    def flat_graph(self, library: Library, graph_def: GraphDef) -> FlatGraph:
        """The flat graph of what was linked."""
        flat = type(graph_def)()
        flat.versions.CopyFrom(graph_def.versions)
        origins = []
        shapes = {with_index(spec.tensor): spec for spec in self.feeds}
        # Of all ops that run, in the order of the file, and what their NodeDefs name as inputs.
        raw_nodes = {name: raw for name, raw in self.opener.raw.items() if name in self.inputs_of}
        inputs = {
            name: [*data, *(f"^{op}" for op in self.controls_of[name])]
            for name, data in self.inputs_of.items()
        }
        ordered = self._ordered(raw_nodes, inputs)
        for name in ordered:
            raw = raw_nodes[name]
            spec = shapes.get(f"{name}:0")
            if spec is not None and raw.node.op not in op_types.MUST_BE_FED:
                flat.node.append(placeholder(name, spec.dtype, spec.shape))
            else:
                node = flat.node.add()
                node.CopyFrom(raw.node)
                node.name = name
                node.device = raw.device
                if node.input != inputs[name]:
                    node.input[:] = inputs[name]
                self._set_classes(node, raw)
            origins.append(raw.origin)
        # Units still refer to functions.
        flat.library.function.extend(library[f] for f in reached_functions(flat.node, library))
        unit_of_node = {name: name for name in self.opener.unit_reason if name in self.inputs_of}
        reasons = {unit: self.opener.unit_reason[unit] for unit in unit_of_node}
        frames = frame_units(flat.node)
        unit_of_node.update(frames)
        reasons.update(dict.fromkeys(frames.values(), "a v1 loop"))
        return FlatGraph(
            graph_def=flat,
            origins=tuple(origins),
            feeds=tuple(s for s in self.feeds if with_index(s.tensor)[:-2] in self.inputs_of),
            fetches=tuple(self.fetches),
            unit_of_node=unit_of_node,
            unit_reason=reasons,
            share_of_node={n: raw_nodes[n].share for n in ordered if raw_nodes[n].share < 1.0},
            after_of_node={
                n: after for n in ordered if raw_nodes[n].after and (after := self._after(n))
            },
            opened=self._opened(),
        )

    def _after(self, name: str) -> tuple[str, ...]:
        """The ops of the run that the op graph puts before an op, though no edge says so."""
        before = []
        for each in self.opener.raw[name].after:
            if ":" in each:
                tensor = with_index(each)
                while tensor in self.opener.alias and tensor not in self.fed:
                    tensor = with_index(self.opener.alias[tensor])
                op = tensor.rpartition(":")[0]
            else:
                is_call = each in self.opener.call_outputs
                op = self._name_of_output_control(each) if is_call else each
            before.append(op)
        return tuple(op for op in dict.fromkeys(before) if op in self.inputs_of)

    def _opened(self) -> dict[str, str]:
        """{opened conditional of the run: a sentence that says how it counts}."""
        if not self.opener.opened:
            return {}
        num_ops = Counter(self.opener.raw[name].conditional for name in self.inputs_of)
        return {
            name: f"a conditional whose {num_ops[name]:,} ops are placed one by one, each of its "
            f"{len(branches_of(node))} branches counted as one of so many"
            for name, node in self.opener.opened.items()
            if any(path in self.inputs_of for path in boundary_names(name, node))
        }

    def _set_classes(self, node: NodeDef, raw: RawNode) -> None:
        """Makes the names in `_class` flat, and drops those that name no op of the run."""
        names = list(raw.beside)
        if raw.follows_input:
            names.append(op_of(self.inputs_of[node.name][0]))
        scope = node.name[: -len(raw.origin.node)] if raw.origin.function else ""
        names += [scope + op for op in beside(node)]
        node.attr.pop("_class", None)
        for name in names:
            for op in (name, f"{name}/predicate"):
                if op in self.inputs_of:
                    node.attr["_class"].list.s.append(b"loc:@" + op.encode())
                    break

    def _ordered(
        self, raw_nodes: Mapping[str, RawNode], inputs: Mapping[str, Sequence[str]]
    ) -> list[str]:
        """The ops that run in a topological order, as near as can be to that of the file.

        The edges by which an iteration of a v1 loop hands values to the next one don't count.
        """
        names = list(raw_nodes)
        waits = [
            [*inputs[name], *(f"^{op}" for op in self._after(name))] if raw.after else inputs[name]
            for name, raw in raw_nodes.items()
        ]
        edges, count = edges_between(names, waits), len(names)
        kinds = [raw.node.op for raw in raw_nodes.values()]
        goes_round = np.array([kind in op_types.NEXT_ITERATION for kind in kinds], dtype=bool)
        counts = (edges.producer >= 0) & ~goes_round[edges.producer]
        ordered = in_order(edges.producer[counts], edges.consumer[counts], count)
        if len(ordered) < count:
            stuck = min({*range(count)} - {*ordered})
            raise ModelError(
                f"reading the graph: op {names[stuck]!r} is part of a cycle that is no loop; a "
                "graph must run from its inputs to its fetches, save the model again"
            )
        return [names[number] for number in ordered]
