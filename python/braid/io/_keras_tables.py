"""Lookup tables of Keras' preprocessing layers, as nodes that hold their keys and values."""


def tables_of(tf, model):
    """id of a table's resource -> the table."""
    found = {}
    for layer in model._flatten_layers():
        for value in list(vars(layer).values()):
            if isinstance(value, tf.lookup.experimental.MutableHashTable) or type(value).__name__ == "StaticHashTable":
                found[id(value.resource_handle)] = value
    return found


def _constant(tf, graph_def, name, value):
    node = graph_def.node.add(name=name, op="Const")
    node.attr["dtype"].type = value.dtype.as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value.numpy(), dtype=value.dtype))


def table_nodes(tf, graph_def, node, table):
    """Makes `node` the table, filled from constants beside it."""
    keys, values = table.export()
    node.op = "HashTableV2"
    node.attr["key_dtype"].type = keys.dtype.as_datatype_enum
    node.attr["value_dtype"].type = values.dtype.as_datatype_enum
    node.attr["shared_name"].s = node.name.encode()
    for part, value in (("keys", keys), ("values", values)):
        _constant(tf, graph_def, f"{node.name}/{part}", value)
    fill = graph_def.node.add(name=f"{node.name}/fill", op="LookupTableImportV2")
    fill.input.extend([node.name, f"{node.name}/keys", f"{node.name}/values"])
    fill.attr["Tin"].type = keys.dtype.as_datatype_enum
    fill.attr["Tout"].type = values.dtype.as_datatype_enum
