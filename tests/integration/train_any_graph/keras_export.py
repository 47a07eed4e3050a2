"""How a Keras model is exported and trained by TensorFlow's own ops, beside which oracle.py trains it."""

import dataclasses
from typing import Callable

import keras
import numpy as np
import tensorflow as tf
from jobs import Exported, batches, has_ids, random_data, write_csv, write_job


def handle_graph(function, names):
    """The GraphDef of a traced function: captured variables become VarHandleOps, captured tensors constants."""
    graph = function.graph
    graph_def = graph.as_graph_def()
    nodes = {node.name: node for node in graph_def.node}
    for captured, placeholder in graph.captures:
        node = nodes[placeholder.op.name]
        node.ClearField("attr")
        if captured.dtype == tf.resource:
            v = names[id(captured)]
            node.op = "VarHandleOp"
            node.attr["dtype"].type = v[1].dtype.as_datatype_enum
            node.attr["shape"].shape.CopyFrom(v[1].shape.as_proto())
            node.attr["shared_name"].s = v[0].encode()
        else:
            node.op = "Const"
            node.attr["dtype"].type = captured.dtype.as_datatype_enum
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(captured.numpy()))
    return graph_def


class RawOptimizer:
    """The formulas of TensorFlow's own ops; rows that a batch does not name are left alone."""

    def __init__(self, kind):
        self.kind, self.slots, self.step = kind, {}, 0

    def slot(self, v, name, value):
        if (id(v), name) not in self.slots:
            self.slots[id(v), name] = tf.Variable(tf.fill(v.shape, value))
        return self.slots[id(v), name]

    def apply(self, pairs):
        self.step += 1
        for gradient, v in pairs:
            if isinstance(gradient, tf.IndexedSlices):
                self.apply_rows(v, gradient)
            else:
                self.apply_dense(v, gradient)

    def apply_dense(self, v, g):
        raw, h = tf.raw_ops, v.handle
        if self.kind == "SGD":
            raw.ResourceApplyGradientDescent(var=h, alpha=0.05, delta=g)
        elif self.kind == "MOMENTUM":
            raw.ResourceApplyMomentum(var=h, accum=self.slot(v, "m", 0.0).handle, lr=0.02, grad=g, momentum=0.9)
        elif self.kind == "ADAGRAD":
            raw.ResourceApplyAdagrad(var=h, accum=self.slot(v, "a", 0.1).handle, lr=0.05, grad=g)
        elif self.kind == "FTRL":
            raw.ResourceApplyFtrl(var=h, accum=self.slot(v, "a", 0.1).handle, linear=self.slot(v, "l", 0.0).handle, grad=g,
                                  lr=0.05, l1=0.0, l2=0.0, lr_power=-0.5)
        else:
            raw.ResourceApplyAdam(var=h, m=self.slot(v, "m", 0.0).handle, v=self.slot(v, "v", 0.0).handle,
                                  beta1_power=0.9**self.step, beta2_power=0.999**self.step, lr=0.002, beta1=0.9, beta2=0.999,
                                  epsilon=1e-5, grad=g)

    def prepare(self, variables):
        """Makes the slots, which no function that is traced may."""
        for v in variables:
            for name, value in {"MOMENTUM": {"m": 0.0}, "ADAGRAD": {"a": 0.1}, "FTRL": {"a": 0.1, "l": 0.0}}.get(self.kind, {}).items():
                self.slot(v, name, value)

    def apply_rows(self, v, g):
        if self.kind == "SGD":
            tf.raw_ops.ResourceScatterSub(resource=v.handle, indices=g.indices, updates=0.05 * g.values)
            return
        indices, places = tf.unique(tf.reshape(g.indices, [-1]))
        width = int(np.prod(v.shape[1:]))
        values = tf.math.unsorted_segment_sum(tf.reshape(g.values, [-1, width]), places, tf.shape(indices)[0])
        raw, h = tf.raw_ops, v.handle
        if self.kind == "MOMENTUM":
            raw.ResourceSparseApplyMomentum(var=h, accum=self.slot(v, "m", 0.0).handle, lr=0.02, grad=values, indices=indices, momentum=0.9)
        elif self.kind == "ADAGRAD":
            raw.ResourceSparseApplyAdagrad(var=h, accum=self.slot(v, "a", 0.1).handle, lr=0.05, grad=values, indices=indices)
        elif self.kind == "FTRL":
            raw.ResourceSparseApplyFtrl(var=h, accum=self.slot(v, "a", 0.1).handle, linear=self.slot(v, "l", 0.0).handle, grad=values,
                                        indices=indices, lr=0.05, l1=0.0, l2=0.0, lr_power=-0.5)
        else:
            self.adam_rows(v, values, indices)

    def adam_rows(self, v, g, indices):
        """Lazy: rows that the batch does not name keep their moments."""
        moments = [self.slot(v, name, 0.0) for name in ("m", "v")]
        first = 0.9 * tf.gather(moments[0], indices) + (1 - 0.9) * g
        second = 0.999 * tf.gather(moments[1], indices) + (1 - 0.999) * g * g
        for kept, rows in zip(moments, (first, second)):
            kept.scatter_update(tf.IndexedSlices(rows, indices))
        rate = 0.002 * (1 - 0.999**self.step) ** 0.5 / (1 - 0.9**self.step)
        tf.raw_ops.ResourceScatterSub(resource=v.handle, indices=indices, updates=rate * first / (tf.sqrt(second) + 1e-5))


@dataclasses.dataclass
class KerasProgram:
    """model() gives a model of the columns but the label; loss(label, output) a scalar."""

    name: str
    columns: dict
    model: Callable
    loss: Callable
    parallel: bool = True
    saved_model: bool = False

    no_keep: str = ""  # why the tape's gradients cannot be kept

    clip = 0
    ways = ("REDO",)

    @property
    def form(self):
        return "SavedModel" if self.saved_model else "Keras"

    @property
    def tables(self):
        return has_ids(self.columns)

    def refuses(self, optimizer):
        return ""

    def export(self, folder, kind):
        folder.mkdir(parents=True, exist_ok=True)
        keras.utils.set_random_seed(11)
        data = random_data(self.columns, np.random.default_rng(len(self.name)))
        model = self.model()
        inputs = [name for name in self.columns if name != "label"]
        specs = [
            tf.TensorSpec([None, *shape], tf.float32 if kind in ("float", "label") else tf.int64, name=name)
            for name, (shape, kind) in self.columns.items()
        ]

        def loss_of(*values):
            fed = dict(zip(self.columns, values))
            output = model([fed[name] for name in inputs] if len(inputs) > 1 else fed[inputs[0]], training=True)
            return tf.identity(self.loss(fed["label"], output), name="loss")

        def prediction_of(*values):
            fed = dict(zip(self.columns, values))
            output = model([fed[name] for name in inputs] if len(inputs) > 1 else fed[inputs[0]], training=False)
            return tf.identity(output, name="prediction")

        traced = tf.function(loss_of).get_concrete_function(*specs)
        predicts = tf.function(prediction_of).get_concrete_function(*specs)
        seeds = [v for layer in model._flatten_layers() for v in getattr(layer, "seed_generator", None) and [layer.seed_generator.state] or []]
        variables = {}
        for v in [*model.variables, *seeds]:
            variables.setdefault(v.path, v.value)
        ids = {id(v.handle): (path, v) for path, v in variables.items()}
        trained = [v.value for v in model.trainable_variables]
        keeps = not self.no_keep and not self.saved_model and kind != "ADAM"
        slots = {}
        graph = self.with_updates(loss_of, specs, trained, kind, ids, slots) if keeps else handle_graph(traced, ids)
        (folder / "graph.pb").write_bytes(graph.SerializeToString())
        (folder / "predict.pb").write_bytes(handle_graph(predicts, ids).SerializeToString())
        np.savez(folder / "first.npz", **{path: v.numpy() for path, v in {**variables, **slots}.items()})
        graph_fields = f'  file: "{folder}/graph.pb" inference_file: "{folder}/predict.pb" loss: "loss" prediction: "prediction" initial_file: "{folder}/first.npz"'
        names = "|".join(v.path for v in model.trainable_variables)
        if self.saved_model:
            module = tf.Module()
            module.kept = [v.value for v in model.variables]
            train = tf.function(lambda *values: {"loss": loss_of(*values), "prediction": prediction_of(*values)}, input_signature=specs)
            tf.saved_model.save(module, str(folder / "saved"), signatures={"train": train})
            graph_fields = f'  file: "{folder}/saved" loss: "loss" prediction: "prediction"'
            names = ""
        if names:
            graph_fields += f' trainable: "{names}"'
        optimizer, losses = RawOptimizer(kind), []
        for batch in batches(data):
            with tf.GradientTape() as tape:
                loss = traced(*[tf.constant(batch[name]) for name in self.columns])
            optimizer.apply(zip(tape.gradient(loss, trained), trained))
            losses.append(float(loss))
        kept = {v.path: v.numpy() for v in model.variables if "seed" not in v.path}
        job = write_job(folder, write_csv(folder, data, self.columns), kind, graph_fields)
        return Exported(job, "train" if keeps else "", np.array(losses), kept)

    def with_updates(self, loss_of, specs, trained, kind, ids, slots):
        """The graph of a training step, with the tape's gradients and the ops that apply them, below the node "train"."""
        optimizer = RawOptimizer(kind)
        optimizer.prepare(trained)
        slots.update((f"slots/{i}", v) for i, v in enumerate(optimizer.slots.values()))
        ids = {**ids, **{id(v.handle): (name, v) for name, v in slots.items()}}

        def train(*values):
            with tf.GradientTape() as tape:
                loss = loss_of(*values)
            optimizer.apply(zip(tape.gradient(loss, trained), trained))
            written = [op for op in tf.compat.v1.get_default_graph().get_operations() if "Apply" in op.type or "Scatter" in op.type]
            with tf.control_dependencies(written):
                tf.no_op(name="train")
            return loss

        return handle_graph(tf.function(train).get_concrete_function(*specs), ids)
