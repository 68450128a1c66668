"""Gives a function as many bodies as there are placements of its ops.

A FunctionDef holds one device per op, so two calls that want different devices for an op need
two bodies. A function reached by several chains of calls is copied only where these chains
disagree; chains that agree, or of which one says nothing about an op, share a body. The first
body keeps the function's name, because signatures and the object graph refer to it.

Loops, compiled calls, and conditionals that TensorFlow runs as functions are placed as one op and
their bodies follow it. If such a body is also called openly elsewhere, and has devices there, the
unit gets a body without any. A conditional that TensorFlow opens is a call of its branches.
"""

import copy
import dataclasses
from collections.abc import Mapping

from graphs.errors import ModelError, PlacementError
from graphs.flat_graph import Origin
from graphs.function_library import bodies, library_of, referred_functions, rename_references
from graphs.graph_view import reached
from graphs.protos import FunctionDef, GraphDef, Library, NodeDef
from rewrite.call_graph import (
    CallGraph,
    device_of_place,
    known_places,
    mark_as_copy,
    opened_callees,
)
from rewrite.pass_base import PassResult, RewriteError, op_path

Chain = tuple[str, ...]


@dataclasses.dataclass(eq=False)
class _Variant:
    """One body of a function while it is being worked out.

    Attributes:
      base: the FunctionDef it is made from.
      free: whether it is the body of a unit, and must hold no devices.
      devices: {node: device}.
      callees: {called function: its variant}, for calls that are opened.
      unit_bodies: {function: its free variant}, for what units of this body refer to.
      units: names of the unit ops in `devices`.
      name: under which it will stand in the library.
    """

    base: str
    free: bool
    devices: dict[str, str]
    callees: "dict[str, _Variant]"
    unit_bodies: "dict[str, _Variant]"
    units: set[str]
    name: str = ""

    def agrees(self, other: "_Variant") -> bool:
        return (
            self.free == other.free
            and _agree(self.devices, other.devices)
            and _agree(self.callees, other.callees)
            and _agree(self.unit_bodies, other.unit_bodies)
        )

    def absorb(self, other: "_Variant") -> None:
        self.devices.update(other.devices)
        self.callees.update(other.callees)
        self.unit_bodies.update(other.unit_bodies)
        self.units.update(other.units)


def _agree(ours: Mapping[str, object], theirs: Mapping[str, object]) -> bool:
    return all(ours.get(key, value) == value for key, value in theirs.items())


class _Planner:
    """Works out the variants of every function that the wanted devices reach."""

    def __init__(self, calls: CallGraph, device_of_origin: Mapping[Origin, str]):
        self.calls = calls
        self.devices: dict[Chain, dict[str, str]] = {}
        self.steps: dict[Chain, set[str]] = {}
        self.variants: dict[str, list[_Variant]] = {}
        for origin, device in device_of_origin.items():
            if not origin.function or origin.calls:
                chain = origin.calls if origin.function else ()
                self.devices.setdefault(chain, {})[origin.node] = device
                for depth in range(len(chain)):
                    self.steps.setdefault(chain[:depth], set()).add(chain[depth])
        self.reached = {f for chain in self.devices for f in self._reached(chain)}
        self._touches: dict[str, bool] = {}
        self._free: dict[str, _Variant | None] = {}
        self.main = self._plan((), "")
        taken = set(self.calls.library)
        for name, variants in self.variants.items():
            keeper = next((v for v in variants if not v.free), variants[0])
            for variant in variants:
                variant.name = name if variant is keeper else _new_name(name, taken)

    def _reached(self, chain: Chain) -> set[str]:
        return {f for depth in range(len(chain)) for f in self.calls.resolve(chain[: depth + 1])}

    def _plan(self, chain: Chain, base: str) -> _Variant:
        callees = {
            callee: self._plan((*chain, step), callee)
            for step in sorted(self.steps.get(chain, ()))
            for callee in self.calls.opened_callees(base, step)
        }
        nodes = self.calls.nodes(base)
        devices = {n: d for n, d in self.devices.get(chain, {}).items() if n in nodes}
        bodies: dict[str, _Variant] = {}
        units = set()
        for name in devices:
            if not callees.keys().isdisjoint(opened_callees(nodes[name], self.calls.library)):
                continue  # a conditional whose branches have devices of their own
            for function in referred_functions([nodes[name]], self.calls.library):
                if self._touches_reached(function):
                    bodies[function] = self._free_variant(function)
                    units.add(name)
        return self._shared(_Variant(base, False, devices, callees, bodies, units))

    def _shared(self, wanted: _Variant) -> _Variant:
        known = self.variants.setdefault(wanted.base, [])
        for variant in known:
            if variant.agrees(wanted):
                variant.absorb(wanted)
                return variant
        known.append(wanted)
        return wanted

    def _touches_reached(self, function: str) -> bool:
        """Whether the function, or what it refers to, also is a body that gets devices."""
        if function not in self._touches:
            referred = reached(
                [function],
                lambda name: referred_functions(self.calls.body(name), self.calls.library),
            )
            self._touches[function] = not referred.keys().isdisjoint(self.reached)
        return self._touches[function]

    def _free_variant(self, function: str) -> _Variant:
        """The body without devices; what it refers to has none either."""
        if function not in self._free:
            self._free[function] = None
            bodies = {
                callee: self._free_variant(callee)
                for callee in referred_functions(self.calls.body(function), self.calls.library)
                if self._touches_reached(callee)
            }
            self._free[function] = self._shared(_Variant(function, True, {}, {}, bodies, set()))
        variant = self._free[function]
        if variant is None:
            raise ModelError(
                f"specialising function {function!r}: it calls itself inside a loop or a "
                "conditional and is also called from outside; a copy of it would have to call "
                "itself under another name, rewrite the recursion as a loop"
            )
        return variant


def _new_name(base: str, taken: set[str]) -> str:
    number = 1
    while f"{base}_placed_{number}" in taken:
        number += 1
    taken.add(f"{base}_placed_{number}")
    return f"{base}_placed_{number}"


@dataclasses.dataclass(frozen=True)
class SpecializeFunctions:
    """Copies functions whose ops are wanted on different devices by different calls.

    Attributes:
      device_of_origin: {origin: device string}, as for PlaceOps. Devices are not
        written by this pass. Ops named without `calls` ask for no copies.
    """

    device_of_origin: Mapping[Origin, str]

    def requires(self, graph_def: GraphDef) -> None:
        """Raises ModelError for a chain that calls a function again, PlacementError for an
        op that is not in the graph."""
        for chain in {origin.calls for origin in self.device_of_origin}:
            if len(set(chain)) < len(chain):
                raise ModelError(
                    f"specialising functions: the calls {' > '.join(chain)} come back to the same "
                    "function; rewrite the recursion as a loop"
                )
        calls = CallGraph(graph_def)
        for origin in self.device_of_origin:
            known_places(calls, origin)

    def __call__(self, graph_def: GraphDef) -> PassResult:
        if not any(origin.calls for origin in self.device_of_origin):
            return PassResult(graph_def, modified=False)
        planner = _Planner(CallGraph(graph_def), self.device_of_origin)
        if all(len(variants) == 1 for variants in planner.variants.values()):
            return PassResult(graph_def, modified=False)
        special = copy.deepcopy(graph_def)
        library, body_of = library_of(graph_def), dict(bodies(special))
        changed = []
        for variants in planner.variants.values():
            for variant in variants:
                if variant.name != variant.base:
                    added = _add_copy(special.library, library[variant.base], variant.name)
                    changed += [op_path(variant.name, node.name) for node in added.node_def]
                    _redirect(added.node_def, variant, library)
                else:
                    nodes = _redirect(body_of[variant.base], variant, library)
                    changed += [op_path(variant.base, node) for node in nodes]
        return PassResult(special, modified=True, changed_ops=tuple(changed))

    def ensures(self, graph_def: GraphDef, result: PassResult) -> None:
        try:
            device_of_place(CallGraph(result.graph_def), self.device_of_origin)
        except PlacementError as error:
            raise RewriteError(f"specialising functions: calls still disagree: {error}") from error


def _add_copy(library: FunctionDef, function: FunctionDef, name: str) -> FunctionDef:
    """Adds a copy of a FunctionDef to the library, with the gradient function it has."""
    gradients = [g for g in library.gradient if g.function_name == function.signature.name]
    added = library.function.add()
    added.CopyFrom(function)
    added.signature.name = name
    mark_as_copy(added, function.signature.name)
    for gradient in gradients:
        library.gradient.add(function_name=name, gradient_func=gradient.gradient_func)
    return added


def _redirect(nodes: NodeDef, variant: _Variant, library: Library) -> list[str]:
    """Makes a body call the variants that were worked out for it; returns changed nodes."""
    opened = {callee: v.name for callee, v in variant.callees.items()}
    inside = {function: v.name for function, v in variant.unit_bodies.items()}
    changed = []
    for node in nodes:
        if variant.free or node.name in variant.units:
            names = inside
        elif opened_callees(node, library):
            names = opened
        else:
            continue
        if rename_references(node, names):
            changed.append(node.name)
    return changed
