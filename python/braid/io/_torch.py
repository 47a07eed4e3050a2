"""Programs of torch.export as the model of a Trainer: parameters are variables under their PyTorch names."""

import os
import re

import numpy as np
import torch

from braid import _braid, losses, ops
from braid.data import Word
from braid.graph import Graph
from braid.io import Source
from braid.io import (_aten, _aten_control, _aten_images, _aten_layers, _aten_math, _aten_order,  # noqa: F401: their rules
                      _aten_places, _aten_random, _aten_shapes)
from braid.io._torch_inputs import columns_of
from braid.io._torch_lost import lost_gradients, say_if_in_eval

_LOSSES = {"cross_entropy": losses.softmax, "binary_cross_entropy_with_logits": losses.sigmoid, "mse_loss": losses.squared}


class _Converter(_aten.Converter):
    """Gathers rows of parameters as rows of tables."""

    def __init__(self, graph, training, by_rows):
        super().__init__(graph, training)
        self._by_rows = by_rows

    def rows(self, weight, ids, sparse):
        name = getattr(weight, "variable_name", None)
        if name and (self._by_rows.fullmatch(name) if self._by_rows else sparse):
            return ops.call("ResourceGather", [weight.handle, ids], {"dtype": weight.dtype})
        # The reshaped value is no variable: its gradient is dense, and the optimizer moves all rows, as PyTorch's do.
        return ops.gather(ops.reshape(weight, list(weight.shape)) if name else weight, ids)


class _Wrapped(torch.nn.Module):
    def __init__(self, loss):
        super().__init__()
        self.loss = loss

    def forward(self, output, label):
        return self.loss(output, label)


def _example(value, rows=4):
    """A real tensor like a fake one whose first dimension may be symbolic."""
    shape = [each if isinstance(each, int) else rows for each in value.shape]
    return torch.zeros(shape, dtype=value.dtype)


def _labels_like(output, column):
    """What a label of this output may be: as the data's column is; a class a row, values, a value a row, a class a place."""
    shape = output.shape
    if column is not None:
        own = (shape[0], *column.shape[1:])
        kinds = (torch.float32, torch.int64) if column.dtype.kind == "f" else (torch.int64, torch.float32)
        several = [own, (*own, 1)] if tuple(shape[1:]) == (*own[1:], 1) else [own]  # one label a row, beside one number
        return [torch.zeros(each, dtype=kind) for each in several for kind in kinds]
    tries = [torch.zeros(shape[:1], dtype=torch.int64), torch.zeros_like(output), torch.zeros(shape[:1])]
    classes = [shape[:-1], shape[:1] + shape[2:], shape] if len(shape) > 2 else [shape]
    return tries + [torch.zeros(each, dtype=torch.int64) for each in classes]


class TorchSource(Source):
    """An ExportedProgram; write_back() sets its parameters and buffers, or those of the module that it was made of."""

    def __init__(self, program, loss, label, inputs, output, freeze, tables, example_label, inference):
        super().__init__({})
        for each in (program, inference) if inference is not None else (program,):
            if not isinstance(each, torch.export.ExportedProgram):
                raise _braid.InvalidArgument("bd.io.torch takes an ExportedProgram: torch.export.export(module.train(), ...)")
        self.program = program
        say_if_in_eval(program)
        loss = loss() if isinstance(loss, type) and issubclass(loss, torch.nn.Module) else loss
        self._loss, self._label, self._inputs, self._output = loss, label, inputs, output
        self._freeze, self._tables = freeze and re.compile(freeze), tables and re.compile(tables)
        self._example_label = example_label
        self._lost = lost_gradients(program)  # before the program is converted, which forgets places
        self._converted = _aten.decomposed(program)
        self._inference = self._converted if inference is None else _aten.decomposed(inference)
        self._names = {}

    # -------------------------------------------------------------------------------------------------------- the graphs
    def _given(self, graph, program, label):
        """Values of the program's placeholders, by name, and the placeholders that columns feed."""
        given, fed = {}, []
        state = {**program.state_dict, **program.constants}
        nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
        columns = columns_of(program, self._inputs or {}, self.columns, label)
        mutated = set(program.graph_signature.buffers_to_mutate.values())
        for spec in program.graph_signature.input_specs:
            name, kind = spec.arg.name, spec.kind.name
            if kind == "USER_INPUT":
                if isinstance(spec.arg, torch.export.graph_signature.ConstantArgument):  # its value is in the program
                    given[name] = spec.arg.value
                    continue
                like = nodes[name].meta.get("val")
                if not isinstance(like, torch.Tensor):
                    raise _braid.InvalidArgument(f"input '{name}' is no tensor: export with it as a constant")
                if name not in columns and not nodes[name].users:
                    continue
                column = columns.get(name, name)
                shape = [each if isinstance(each, int) else None for each in like.shape]
                given[name] = _placeholder(graph, f"in_{column}", shape, _aten.dtype_of(like.dtype))
                fed.append((given[name], column))
            elif kind in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
                value = state[spec.target]
                if kind == "PARAMETER" or spec.target in mutated:
                    given[name] = self._variable(graph, spec.target, value, kind == "PARAMETER" and value.requires_grad)
                else:
                    given[name] = _constant(graph, value, name)
            elif kind == "TOKEN":  # orders checks of what is computed
                given[name] = None
            else:
                raise _braid.InvalidArgument(f"input '{name}' is a {kind.lower()}, which no graph can hold")
        return given, fed

    def _variable(self, graph, name, value, trainable):
        if value.dtype in (torch.float64, torch.float16, torch.bfloat16) and trainable:
            kind = str(value.dtype).removeprefix("torch.")
            raise _braid.InvalidArgument(
                f"parameter '{name}' is {kind}, and float32 is trained: export module.float()" + ("" if kind == "float64"
                else "; Trainer(set=['runtime.precision=BF16']) computes in 16 bits"))
        self._names[name] = value
        return graph.add_variable(name, list(value.shape), _aten.dtype_of(value.dtype), None,
                                  trainable and not self._is_frozen(name))

    def _is_frozen(self, name):
        return self._freeze is not None and self._freeze.fullmatch(name) is not None

    def _trace(self, folder, training, label):
        program = self._converted if training else self._inference
        with Graph() as graph:
            given, fed = self._given(graph, program, label)
            walk = _Converter(graph, training, self._tables)
            walk.problems = list(self._lost)
            outputs = walk.run(program.graph_module, given)
            if walk.problems:
                raise _braid.InvalidArgument("the program cannot be trained here:\n  " + "\n  ".join(walk.problems))
            specs = program.graph_signature.output_specs
            results = [value for spec, value in zip(specs, outputs) if spec.kind.name in ("USER_OUTPUT", "LOSS_OUTPUT")]
            fakes = [node.meta["val"] for node in program.graph.output_node().args[0]
                     if isinstance(node, torch.fx.Node)]
            fakes = [fake for spec, fake in zip(specs, fakes) if spec.kind.name == "USER_OUTPUT"]
            updates = [self._update(graph, spec.target, value) for spec, value in zip(specs, outputs)
                       if spec.kind.name == "BUFFER_MUTATION"] if training else []
            loss, prediction = self._ends(graph, results, fakes, fed, label)
            path = os.path.join(folder, "model.pb" if training else "inference.pb")
            graph.write(path)
        return path, loss.value_name, prediction.value_name, updates, fed

    def _update(self, graph, name, value):
        variable = next(each for each in graph.variables if each.variable_name == name)
        made = variable.assign(value)
        return getattr(made, "op", made).name

    def _ends(self, graph, results, fakes, fed, label):
        """The loss and the prediction."""
        if self._loss is None:  # the program computes it
            if results[0].shape not in ((), (1,)):
                raise _braid.InvalidArgument(f"the program's first output is {list(results[0].shape)}, no loss: loss=...")
            return ops.reduce_sum(results[0], name="loss"), ops.identity(results[self._output or -1], name="prediction")
        at = self._output or 0
        prediction = ops.identity(results[at], name="prediction")
        if isinstance(self._loss, str):
            if self._loss not in _LOSSES:
                raise _braid.InvalidArgument(f"there is no loss '{self._loss}': {sorted(_LOSSES)}, or a function")
            if self._loss == "cross_entropy" and not self._is_a_class_a_row(prediction, label):
                loss = torch.nn.functional.cross_entropy
                return self._traced_loss(graph, loss, prediction, fakes[at], fed, label), prediction
            shape = [None] if self._loss == "cross_entropy" else list(prediction.shape)
            kind = "int64" if self._loss == "cross_entropy" else "float32"
            truth = _placeholder(graph, f"in_{label}", shape, kind)
            fed.append((truth, label))
            return ops.identity(_LOSSES[self._loss](prediction, truth), name="loss"), prediction
        return self._traced_loss(graph, self._loss, prediction, fakes[at], fed, label), prediction

    def _is_a_class_a_row(self, prediction, label):
        """Without places that are ignored (-100), where the rows are known."""
        column = self.columns.get(label)
        known = column is not None and column.size > 0
        return len(prediction.shape) == 2 and (column is None or column.ndim == 1 or column.shape[1:] == (1,)) and not (
            known and column.min() < 0)

    def _traced_loss(self, graph, loss, prediction, fake, fed, label):
        """The loss is a function of PyTorch: exported by itself, and converted."""
        output = _example(fake)
        tries = [self._example_label] if self._example_label is not None else _labels_like(
            output, self.columns.get(label))
        said = []
        for example in tries:
            try:
                rows = torch.export.Dim("rows")
                with torch.no_grad():
                    if tuple(loss(output, example).shape) not in ((), (1,)):
                        raise ValueError("the loss is no scalar")
                exported = torch.export.export(_Wrapped(loss), (output, example),
                                               dynamic_shapes=({0: rows}, {0: rows}))
            except Exception as error:  # noqa: BLE001: another type or shape of the label may do
                said.append(f"label {example.dtype} {list(example.shape)}: {str(error).splitlines()[0]}")
                continue
            truth = _placeholder(graph, f"in_{label}", [None, *example.shape[1:]], _aten.dtype_of(example.dtype))
            fed.append((truth, label))
            lost = lost_gradients(exported, inputs=True)
            made = _aten.decomposed(exported)
            names = [spec.arg.name for spec in made.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
            given = dict(zip(names, (prediction, truth)))
            for spec in made.graph_signature.input_specs:
                if spec.kind.name != "USER_INPUT":
                    value = {**made.state_dict, **made.constants}[spec.target]
                    given[spec.arg.name] = _constant(graph, value, spec.arg.name)
            walk = _Converter(graph, True, None)
            walk.problems = lost
            results = walk.run(made.graph_module, given)
            if walk.problems:
                raise _braid.InvalidArgument("the loss cannot be computed here:\n  " + "\n  ".join(walk.problems))
            return ops.reduce_sum(results[0], name="loss")
        decides = any("data-dependent" in each for each in said)
        hint = "\n  it decides by values, as a check of its arguments does: write its formula" if decides else ""
        raise _braid.InvalidArgument("the loss takes no label that was tried (example_label=...):\n  " + "\n  ".join(said) + hint)

    def job_fields(self, folder, label):
        label = self._label or label
        path, loss, prediction, updates, fed = self._trace(folder, True, label)
        inference, *_ = self._trace(folder, False, label)
        values = os.path.join(folder, "initial.npz")
        np.savez(values, **{name: value.detach().cpu().numpy() for name, value in self._names.items()})
        fields = {"file": path, "inference_file": inference, "loss": loss, "prediction": prediction, "label": label,
                  "updates": updates or ["NONE"], "initial": Word("FILE"), "initial_file": values,
                  "feeds": [{"value": value.value_name, "column": column} for value, column in fed]}
        return {"graph": fields}

    def names_of_parameters(self):
        """{id of a parameter of the module: its name}."""
        return {id(value): name for name, value in self.program.state_dict.items()}

    def is_trained(self, name):
        return self.program.state_dict[name].requires_grad and not self._is_frozen(name)

    def write_back(self, module=None):
        """Sets the parameters and buffers of `module`, default the ExportedProgram's, to the trained values."""
        state = (self.program if module is None else module).state_dict
        state = state() if callable(state) else state
        missing = [name for name in self._names if name not in state]
        if missing:
            raise _braid.InvalidArgument(f"the module has no '{missing[0]}': it is not the one that was exported")
        trained = self._trained()
        with torch.no_grad():
            for name in self._names:
                if name in trained:  # another name of a weight that is used twice has its memory
                    state[name].copy_(torch.from_numpy(np.array(trained[name])))


def _constant(graph, value, name):
    return graph.constant(value.detach().cpu().numpy(), _aten.dtype_of(value.dtype), name=name)


def _placeholder(graph, name, shape, kind):
    from braid.scopes import placeholder
    return placeholder(name, shape, kind)
