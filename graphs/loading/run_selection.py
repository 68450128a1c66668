"""Finds what one run of a model is: the tensors and ops that it fetches."""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence

from graphs import op_types
from graphs.errors import FetchError, ModelError
from graphs.function_library import referred_functions
from graphs.graph_view import GraphView
from graphs.host.did_you_mean import nearest
from graphs.loading.load_options import LoadOptions
from graphs.loading.variable_updates import OptimizerUpdates, is_assignment
from graphs.names import op_of
from graphs.protos import NodeDef
from graphs.source_model import Signature

TRAIN_SIGNATURES = ("train_step", "train")
DEFAULT_SIGNATURE = "serving_default"
KERAS_TWIN = "serve"  # model.export() writes the same function under both names
INFERENCE_ONLY = (
    "it has no training step, so it is placed for inference; --mode=train makes a step of its "
    "trainable variables"
)
_LOSS_NAMES = ("loss", "total_loss")
_FLOAT_TYPES = frozenset({1, 2, 14, 19})  # DT_FLOAT, DT_DOUBLE, DT_BFLOAT16, DT_HALF
_TRAIN_OP_NAME = re.compile(r"(.*/)?train_op")
_SAVER_OP = re.compile(r"(Save|Restore)(V2|Slices?)?|MergeV2Checkpoints|ShardedFile\w+")
_NEVER_FETCHED = re.compile(
    r"NoOp|Const|Assert|Print\w*|VarHandleOp|VarIsInitializedOp|IsVariableInitialized|VariableV2"
    r"|Variable|ReadVariableOp|\w*Summary\w*"
    r"|Placeholder\w*|DestroyResourceOp|\w*HashTable\w*|InitializeTable\w*|LookupTableImport\w*"
    r"|\w*Dataset\w*|Iterator\w*|MakeIterator|Queue\w*|\w*Queue\w*|DisableCopyOnRead"
)


@dataclasses.dataclass(frozen=True)
class SelectedRun:
    """The run that was found.

    Attributes:
      fetches: tensors "op:i" and ops "op".
      mode: "train" or "inference".
      origin: how the run was found, one sentence.
      signature: name of the signature that is run; empty where it is none.
      step_wanted: whether a training step is to be made of these fetches.
      guessed: a sentence about each choice that the user did not make.
    """

    fetches: tuple[str, ...]
    mode: str
    origin: str
    signature: str = ""
    step_wanted: bool = False
    guessed: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class RunSources:
    """What a run is looked for in.

    Attributes:
      view: the main graph and its library.
      updates: the ops that train variables.
      signatures: {name: Signature}.
      train_ops: the ops of the train_op collection or signature.
      could_train: whether a training step could be made, were it asked for: the model is a
        SavedModel or Keras model with trainable variables.
    """

    view: GraphView
    updates: OptimizerUpdates
    signatures: Mapping[str, Signature]
    train_ops: Sequence[str]
    could_train: bool


def select_run(sources: RunSources, options: LoadOptions) -> SelectedRun:
    """Finds the run that the user asked for, else the one that the model suggests.

    A training run that is in the model comes first, then an inference run of a signature or of the
    ops whose results nobody uses. A training step is made of it only where the user wants to train.

    Raises:
      FetchError: a fetch or signature that was asked for is not in the model.
      ModelError: nothing can be run.
    """
    if options.fetch:
        return _asked(sources, options)
    if options.signature:
        return _signature_run(sources, options)
    if options.mode != "inference":
        training_run = _training_run(sources)
        if training_run is not None:
            return _with_loss(training_run, sources.view)
    return _other_run(sources, options)


def _with_loss(run: SelectedRun, view: GraphView) -> SelectedRun:
    """The run, with the loss among its fetches if it fetches ops alone and the loss has a name."""
    named = [name for name in _LOSS_NAMES if name in view.nodes]
    if not named or any(":" in fetch for fetch in run.fetches):
        return run
    node = view.nodes[named[0]]
    if "T" not in node.attr or node.attr["T"].type not in _FLOAT_TYPES:
        return run
    return dataclasses.replace(
        run, fetches=(f"{node.name}:0", *run.fetches), origin=f"{run.origin}, and {node.name}"
    )


def _asked(sources: RunSources, options: LoadOptions) -> SelectedRun:
    """The run of the fetches that the user names."""
    for fetch in options.fetch:
        sources.view.check_tensor(fetch, "fetch")
    own_mode = _mode_of(sources, options.fetch)
    mode = options.mode or own_mode
    # A step can be made of tensors only; an op that groups unknown updates is run as it is.
    wanted = mode == "train" and own_mode != "train" and all(":" in f for f in options.fetch)
    return SelectedRun(options.fetch, mode, f"fetches {', '.join(options.fetch)}", "", wanted)


def _signature_run(sources: RunSources, options: LoadOptions) -> SelectedRun:
    """The run of the signature that the user names."""
    name = options.signature
    if name not in sources.signatures:
        raise FetchError(
            f"looking up the signature {name!r}: the model has "
            f"{', '.join(sorted(sources.signatures)) or 'no signatures'}"
            f"{nearest(name, sources.signatures)}"
        )
    fetches = signature_fetches(sources.signatures[name])
    trains = name in TRAIN_SIGNATURES or _mode_of(sources, fetches) == "train"
    mode = options.mode or ("train" if trains else "inference")
    return SelectedRun(fetches, mode, f"signature {name}", name, mode == "train" and not trains)


def _training_run(sources: RunSources) -> SelectedRun | None:
    """The training run that is in the model; where it has several, the one it says most plainly."""
    for name in TRAIN_SIGNATURES:
        if name in sources.signatures:
            fetches = signature_fetches(sources.signatures[name])
            return SelectedRun(fetches, "train", f"signature {name}", name)
    view = sources.view
    in_collection = [name for name in sources.train_ops if op_of(name) in view.nodes]
    if in_collection:
        return SelectedRun(tuple(in_collection), "train", "the train_op collection")
    named = [name for name in view.nodes if _TRAIN_OP_NAME.fullmatch(name)]
    if named:
        fetch = min(named, key=lambda name: (name.count("/"), len(name)))
        return SelectedRun(
            (fetch,), "train", f"the op {fetch}", guessed=_choice("train op", fetch, named)
        )
    group = _update_group(sources)
    if group:
        origin = f"the optimizer's updates, {_named(group)}"
        return SelectedRun(
            group, "train", origin, guessed=(f"the training op was found as {origin}",)
        )
    return None


def _update_group(sources: RunSources) -> tuple[str, ...]:
    """The op that waits for most of the optimizer's updates, and the updates that it leaves out."""
    updates = list(sources.updates.variables_of)
    if not updates:
        return ()
    view = sources.view
    waits_for: dict[str, set[str]] = {name: {name} for name in updates}
    pending = list(updates)
    while pending:
        name = pending.pop()
        for user in view.users[name]:
            if not _waits(view.nodes[user], view.nodes[name]):
                continue
            known = waits_for.setdefault(user, set())
            if not waits_for[name] <= known:
                known |= waits_for[name]
                pending.append(user)
    order = {name: index for index, name in enumerate(view.nodes)}
    cover = max(len(covered) for covered in waits_for.values())
    best = [name for name, covered in waits_for.items() if len(covered) == cover]
    # Of a chain the last is meant: the global step's increment waits for the group of updates.
    last = [name for name in best if not any(user in best for user in view.users[name])]
    fetch = min(last or best, key=lambda name: order[name])
    return (fetch, *[name for name in updates if name not in waits_for[fetch]])


def _waits(user: NodeDef, op: NodeDef) -> bool:
    """Whether `user` groups or counts what `op` is part of.

    The increment of the global step may wait by way of its constant alone: where the constant waits
    for the updates, graph builders leave the increment's own control edge out.
    """
    if op.op == "Const":
        return user.op in op_types.COUNTS
    return user.op in op_types.COUNTS | {"Const"} and f"^{op.name}" in user.input


def _other_run(sources: RunSources, options: LoadOptions) -> SelectedRun:
    """The run of a signature or of the sinks, to make a training step of where one is wanted."""
    mode = options.mode or "inference"
    says_so = (INFERENCE_ONLY,) if sources.could_train and not options.mode else ()
    runnable = {name: s for name, s in sources.signatures.items() if s.outputs}
    if runnable:
        name = DEFAULT_SIGNATURE if DEFAULT_SIGNATURE in runnable else min(runnable)
        twin = runnable.get(KERAS_TWIN)
        if name == DEFAULT_SIGNATURE and twin and _looks(twin) == _looks(runnable[name]):
            del runnable[KERAS_TWIN]
        guessed = _choice("signature", name, list(runnable))
        fetches = signature_fetches(runnable[name])
        guessed = (*guessed, *says_so)
        return SelectedRun(fetches, mode, f"signature {name}", name, mode == "train", guessed)
    fetches = sinks(sources.view)
    if not fetches:
        raise ModelError(
            "looking for something to run: the graph has no signature, no training op and no op "
            f"whose result nobody uses; {_remedy(sources.view)}"
        )
    origin = f"the ops whose results nobody uses, {_named(fetches)}"
    guessed = (f"no training op was found; a run fetches {origin}", *says_so)
    return SelectedRun(fetches, mode, origin, "", mode == "train", guessed)


def _remedy(view: GraphView) -> str:
    """What a user can do where nothing in a model can be run."""
    if not view.library:
        return "name what to run with --fetch"
    return (
        f"it has {len(view.library)} functions that only Python can call: save it again with "
        "signatures, as in tf.saved_model.save(model, path, signatures=model.f)"
    )


def sinks(view: GraphView) -> tuple[str, ...]:
    """Outputs that no op uses, those of ops that save, restore or initialise left out."""
    saving = view.descendants(n for n, node in view.nodes.items() if _saves_or_restores(view, node))
    unused = [
        name
        for name, node in view.nodes.items()
        if not view.users[name]
        and name not in saving
        and not _NEVER_FETCHED.fullmatch(node.op)
        and not is_assignment(node)
    ]
    inputs = [name for name, node in view.nodes.items() if node.op in op_types.PLACEHOLDERS]
    fed = view.descendants(inputs)
    with_inputs = [name for name in unused if name in fed]
    return tuple(f"{name}:0" for name in with_inputs or unused)


def _saves_or_restores(view: GraphView, node: NodeDef) -> bool:
    """Whether an op, or one of a function that it calls, is a saver's."""
    called = referred_functions([node], view.library)
    bodies = ([node], *(view.library[name].node_def for name in called))
    return any(_SAVER_OP.fullmatch(each.op) for body in bodies for each in body)


def signature_fetches(signature: Signature) -> tuple[str, ...]:
    """What running a signature fetches, in the order of its output names."""
    outputs = [signature.outputs[name].tensor for name in sorted(signature.outputs)]
    return tuple(dict.fromkeys(outputs))


def _looks(signature: Signature) -> list[tuple[str, str, object]]:
    """Dtypes and shapes of inputs and outputs, by name."""
    specs = [*sorted(signature.inputs.items()), *sorted(signature.outputs.items())]
    return [(name, spec.dtype, spec.shape) for name, spec in specs]


def _mode_of(sources: RunSources, fetches: Iterable[str]) -> str:
    """ "train" where running `fetches` trains a variable, else "inference"."""
    ancestors = sources.view.ancestors(fetches)
    return "train" if any(op in ancestors for op in sources.updates.variables_of) else "inference"


def _choice(what: str, taken: str, of: Sequence[str]) -> tuple[str, ...]:
    """The sentence that says what was taken of several; none where there was no choice."""
    if len(of) < 2:
        return ()
    return (f"{what} {taken} was taken of {len(of)}: {', '.join(sorted(of)[:8])}",)


def _named(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    shown = ", ".join(names[:4])
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"
