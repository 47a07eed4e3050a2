"""Which column feeds which input of an exported program."""

import torch
from torch.utils import _pytree

from braid import _braid


def _keys(program):
    """The last key of a dict that leads to each input, by the input's name; of those that have one."""
    inputs = [spec.arg.name for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
    tree = program.call_spec.in_spec
    if tree is None or tree.num_leaves != len(inputs):
        return {}
    paths, _ = _pytree.tree_flatten_with_path(_pytree.tree_unflatten(inputs, tree))
    return {name: path[-1].key for path, name in paths if path and isinstance(path[-1], _pytree.MappingKey)
            and isinstance(path[-1].key, str)}


def columns_of(program, inputs, columns, label):
    """{input: column} of the tensors: what `inputs` says, the column of the input's name, or that of its key where it is
    a part of a dict; a single input has the single column that is no label, whatever its name. `columns`: those of the data, empty where they are not known. Throws: InvalidArgument naming inputs
    that have none."""
    made, keys = {}, _keys(program)
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    names = [spec.arg.name for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"
             and isinstance(nodes[spec.arg.name].meta.get("val"), torch.Tensor)]
    unknown = [name for name in inputs if name not in names and keys.get(name) not in names]
    if unknown:
        raise _braid.InvalidArgument(f"inputs: the program has no input '{unknown[0]}': it has {', '.join(names)}")
    others = [each for each in columns if each != label]
    if len(names) == 1 == len(others) and not inputs:
        inputs = {names[0]: others[0]}
    for name in names:
        made[name] = inputs.get(name, name if name in columns or keys.get(name) not in columns else keys[name])
        if columns and made[name] not in columns and nodes[name].users:
            raise _braid.InvalidArgument(f"input '{name}' has no column '{made[name]}': the data has "
                                         f"{', '.join(columns)}. bd.io.torch(..., inputs={{'{name}': 'column'}})")
        if columns and made[name] not in columns:
            del made[name]
    return made
