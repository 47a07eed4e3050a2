"""Trainer: a model, data and an optimizer as one job, run by the same C++ loop as `braid train`."""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from braid import _braid, data as _data, dtypes
from braid._calls import Calls, sigterm_raises
from braid._keras_run import KerasRun, are_of_keras
from braid._optimizers_of import Factors, as_optimizer, as_schedule
from braid._trained import Trained, Variables
from braid.data import Word, fields
from braid.dtypes import from_native, to_native
from braid.graph import Graph
from braid.optim import Optimizer, SGD
from braid.scopes import Inputs
from braid.settings import Checkpoint, History, Outputs, StepResult, as_strategy, words

if TYPE_CHECKING:
    from braid.io import Source


MANY = 1_000_000_000  # steps of a job whose steps are called one by one


def _is_slice(name: str, values: Mapping[str, Any]) -> bool:
    """Whether that is this process's slice of a variable of strategy TENSOR, or of a slot, beside the whole."""
    variable, is_slice, rest = name.rpartition("/slice")
    return bool(is_slice) and variable in values and (not rest or rest[0] == "/")


class Trainer(Trained):
    """Trains a model.

    model: a function (inputs, training) -> Outputs, or a source of bd.io. data, eval_data: of bd.data, with .batch().
    optimizer: of bd.optim, or one of Keras or PyTorch with a counterpart there; None: what a Keras model was compiled with.
    strategy: bd.PS() and others; "auto" is AllReduce where a launcher has started several processes, PS where there are
    servers, else Local. streams: compute streams. staging: a dict of the job's fields. schedule: the same, a scheduler of
    PyTorch, or of bd.optim.schedule(). clip_norm: of all gradients together. checkpoint: bd.Checkpoint or a directory.
    metric: "AUC", "ACCURACY", "RMSE", ... label: the column of the truth. evaluate_every: steps. set: job fields as
    "a.b=value". name: of the job.

    The job is in `.job`; save_job() writes it with all that it reads, so that `braid train` repeats the run: the same
    bits. Thread rule: one call at a time.
    """

    def __init__(self, model: Callable[[Inputs, bool], Outputs] | Source, data: _data.Data, optimizer: Any = None, *,
                 strategy: Any = "auto", streams: int = 1, staging: Mapping[str, Any] | None = None, schedule: Any = None,
                 clip_norm: float = 0, checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
                 metric: str | None = None, label: str = "label", eval_data: _data.Data | None = None,
                 evaluate_every: int = 0, seed: int = 1, device: str = "auto", name: str = "job",
                 set: Iterable[str] = (), data_dir: str = ".") -> None:
        if data.rows_per_batch is None:
            raise _braid.InvalidArgument("the data has no batches: data.batch(rows)")
        self.data, self.eval_data = data, eval_data
        self.optimizer = optimizer if isinstance(optimizer, Optimizer) else SGD(1.0)  # until the model's variables are known
        self.name, self.label, self.seed = name, label, seed
        self._options = dict(streams=streams, staging=staging or {}, schedule=None, clip_norm=clip_norm,
                             metric=metric, evaluate_every=evaluate_every, device=device)
        self._set, self._data_dir = list(set), os.path.abspath(data_dir)
        self.strategy = as_strategy(strategy)
        self.checkpoint = Checkpoint(os.fspath(checkpoint)) if isinstance(checkpoint, (str, os.PathLike)) else checkpoint
        self._folder = tempfile.mkdtemp(prefix="braid-")
        atexit.register(shutil.rmtree, self._folder, True)
        self._values: dict[str, Any] = {}  # with slots
        self._step = 0  # steps that are in them
        self._elsewhere: list[str] = []  # trained variables whose values other processes have
        self._steps: Any = None
        self._runner = None
        self._rates_known = MANY  # single steps whose rates were asked for
        self._at_work = threading.Lock()
        self._model, self.source = None, None if callable(model) else model
        if callable(model) and (texts := getattr(data, "texts", None)):
            raise _braid.InvalidArgument(f"column '{next(iter(texts))}' is text, which models of bd.io take; a function takes "
                                         "numbers: bd.data.col.categorical(name, buckets=...)")
        self.data, self.eval_data = self._with_texts(data), self._with_texts(eval_data)
        if not callable(model):
            model.columns = self._columns()
        self._model = self._trace(model) if callable(model) else model.job_fields(self._folder, label)
        if self.source is not None:
            self.source.trainer, self._eval_given = self, self.eval_data
            self._options["metric"] = metric or self.source.metric
            self.data, self.eval_data = self._numbers(self.data), self._numbers(self.eval_data)
        self.optimizer, own_schedule = as_optimizer(optimizer, self.source)
        self._options["schedule"] = as_schedule(own_schedule if schedule is None else schedule)
        self.variables = Variables(self)

    def __repr__(self) -> str:
        return (f"<braid.Trainer '{self.name}': {self.source or 'a model function'}, {self.optimizer}, {self.strategy}, "
                f"{self._step} steps done>")

    # ------------------------------------------------------------------------------------------------------- the model
    def _columns(self):
        """The data's columns, those of strings too, which only a source takes."""
        text = {}
        if isinstance(self.data, _data.Arrays) and self.source is not None and not self._model:
            text = {name: value for name, value in self.data.arrays.items() if value.dtype.kind in "USO"}
        numbers = {name: value for name, value in self.data.arrays.items() if name not in text} if text else None
        if text and not numbers:
            return text
        rows = _data.Arrays(numbers).rows() if text else self._shapes()
        return {**{name: np.asarray(value) for name, value in rows.arrays().items()}, **text}

    def _numbers(self, data):
        """The rows, where strings are what the source's model makes of them."""
        data = self._with_texts(data)
        if self.source is None or not isinstance(data, _data.Arrays):
            return data
        made = self.source.numbers(data.arrays)
        return data if made is data.arrays else data.with_arrays(made)

    def _with_texts(self, data):
        """Files that have columns of texts, as arrays."""
        if not (texts := getattr(data, "texts", None)):
            return data
        return data.in_memory(self._job(data=data, model={"name": "mlp"}, steps=1), self._data_dir)

    def _shapes(self):
        """The data's columns; of files without their rows."""
        if isinstance(self.data, _data.Arrays):
            return self.data.rows()
        return _braid.Rows.columns_of_files(self._job(model={"name": "mlp"}, steps=1), self._data_dir)

    def _rows(self, data):
        if isinstance(data, _data.Arrays):
            return data.rows()
        if not hasattr(data, "_read"):
            text = self._job(data=data, model={"name": "mlp"}, steps=1)
            data._read = _braid.Rows.of_files(text, self._data_dir, False)
        return data._read

    def _trace(self, model):
        columns = self._columns()
        made = {}
        for training, file in ((True, "model.pb"), (False, "inference.pb")):
            with Graph() as graph:
                inputs = Inputs(columns)
                outputs = model(inputs, training)
                if outputs.loss is None:
                    raise _braid.InvalidArgument("the model's loss is None")
                updates = [each.name if not hasattr(each, "op") else each.op.name for each in outputs.updates]
                prediction = outputs.prediction
                graph.write(os.path.join(self._folder, file))
                predicted = None if prediction is None else prediction.value_name
                made[training] = (outputs.loss.value_name, predicted, updates, inputs.made)
        loss, prediction, updates, fed = made[True]
        if made[False][1] != prediction:
            raise _braid.InvalidArgument(f"the prediction is '{prediction}' in training and '{made[False][1]}' without: "
                                         "give its node one name, with name=")
        return {"graph": {"file": os.path.join(self._folder, "model.pb"),
                          "inference_file": os.path.join(self._folder, "inference.pb"), "loss": loss,
                          "prediction": prediction, "label": self.label, "updates": updates or ["NONE"],
                          "initial": Word("GRAPH"),
                          "feeds": [{"value": each.value_name, "column": name} for name, each in fed.items()]}}

    # --------------------------------------------------------------------------------------------------------- the job
    def _job(self, steps=None, epochs=None, data=None, model=None, folder=None):
        options, data = self._options, data or self.data
        inputs = {**data.input_fields, **(data.settings or self.data.settings)}
        train = data.files_in_job if hasattr(data, "files_in_job") else getattr(data, "paths", None)
        inputs["train_files"] = list(train or [f"{name}.npy" for name in data.arrays])
        test = self.eval_data
        if test is not None:
            inputs["test_files"] = list(getattr(test, "paths", None) or [f"test/{name}.npy" for name in test.arrays])
        optimizer = self.optimizer.job_fields()
        optimizer["kind"] = Word(optimizer["kind"])
        if options["clip_norm"]:
            optimizer["clip_norm"] = float(options["clip_norm"])
        job = {"name": self.name, "seed": self.seed, "steps": steps, "epochs": epochs, "model": model or self._model,
               "input": inputs, "optimizer": optimizer, "strategy": self.strategy.job_fields(),
               "streams": {"count": options["streams"]}, "staging": words(options["staging"]) or None,
               "schedule": words(options["schedule"]) if isinstance(options["schedule"], dict) else None,
               "evaluation": {"metric": Word(options["metric"].upper()) if options["metric"] else None,
                              "every_steps": options["evaluate_every"] or None,
                              "enabled": test is not None},
               "checkpoint": self.checkpoint.job_fields() if self.checkpoint else None,
               "runtime": {"device": Word(options["device"].upper()), "op_libraries": _braid.loaded_op_libraries() or None}}
        if options["streams"] == 1:
            del job["streams"]
        text = fields(job, "")
        return _braid.overridden(text, self._set) if self._set else text

    def _rates(self, steps, epochs=None):
        """Factors of the learning rate and the steps of each, where the schedule is of another program."""
        schedule = self._options["schedule"]
        if not isinstance(schedule, Factors):
            return None
        return schedule.rates(steps if steps is not None else math.ceil(epochs * self._steps_per_epoch()),
                              self._steps_per_epoch)

    def _steps_per_epoch(self):
        return max(1, len(self._rows(self.data)) // self.data.rows_per_batch)

    def _steps_of(self, steps, epochs):
        if steps is None and epochs is None:
            raise _braid.InvalidArgument("fit needs steps or epochs")
        if steps is not None and steps < 0 or steps is None and not epochs >= 0:
            raise _braid.InvalidArgument(f"fit of {steps if steps is not None else epochs} "
                                         f"{'steps' if steps is not None else 'epochs'}: a number of at least 0")
        return steps, (None if steps is not None else float(epochs))

    @property
    def job(self) -> str:
        """The job as text, for one epoch: what is set. `braid train --print-job` prints the defaults, too. Throws:
        InvalidArgument where it is none."""
        text = self._job(epochs=1.0)
        _braid.job_text(text, [])
        return _braid.overridden(text, [])

    def save_job(self, directory: str | os.PathLike[str], steps: int | None = None, epochs: float | None = None) -> str:
        """Writes job.pbtxt, the model's graphs and arrays into `directory`; `braid train --job <directory>/job.pbtxt
        --data-dir <directory>` is fit(steps, epochs) of a new Trainer. Returns the job's path."""
        if isinstance(self._options["schedule"], Factors):
            raise _braid.InvalidArgument("the schedule is a function, or of another program, which no job can say: "
                                         "Trainer(schedule={'kind': 'COSINE_DECAY'}) and others of proto/job.proto")
        os.makedirs(directory, exist_ok=True)
        steps, epochs = self._steps_of(steps, epochs)
        directory = os.path.abspath(directory)
        for file in os.listdir(self._folder):
            shutil.copy(os.path.join(self._folder, file), directory)
        if isinstance(self.data, _data.Arrays):
            self.data.files(directory)
        if isinstance(self.eval_data, _data.Arrays):
            self.eval_data.files(os.path.join(directory, "test"))
        text = self._job(steps, epochs).replace(self._folder, directory)
        path = os.path.join(directory, "job.pbtxt")
        with open(path, "w") as out:
            out.write(text)
        return path

    # -------------------------------------------------------------------------------------------------------- training
    def fit(self, steps: int | None = None, epochs: float | None = None, callbacks: Iterable[Any] = (),
            resume: bool | str = False, overwrite: bool = False) -> History:
        """Trains for so many steps or epochs more, and returns a History. Under a launcher (TF_CONFIG, mpirun, srun,
        torchrun, `braid launch`) this process becomes its task: a server serves until the job ends. resume: from the
        newest checkpoint; "changed": although seed, data, model or optimizer are others. overwrite: checkpoints of an
        earlier run may go; those of an earlier fit of this Trainer do. Ctrl-C (a notebook's interrupt) and SIGTERM stop
        behind a step, with a checkpoint, and raise KeyboardInterrupt or SystemExit(143); so do exceptions of callbacks.
        The Trainer has what was trained until then, and goes on from it.
        callbacks: of bd.callbacks, or of Keras with a model of bd.io.keras, which are called between epochs.
        Thread rule: one fit or step of a Trainer at a time; others may train meanwhile.
        Throws: InvalidArgument and what a step throws."""
        callbacks = list(callbacks)
        with self._alone():
            if any(are_of_keras(each) for each in callbacks):
                return KerasRun(self, callbacks).fit(None if steps is not None else epochs, resume, overwrite)
            history = History(loss=[], evaluations=[])
            calls = Calls(self, callbacks, history)
            with sigterm_raises():
                calls.begin()
                self._fit(steps, epochs, calls, resume, overwrite)
            calls.end()
            return history

    @contextlib.contextmanager
    def _alone(self):
        self._begin_alone()
        try:
            yield
        finally:
            self._at_work.release()

    def _begin_alone(self):
        if not self._at_work.acquire(blocking=False):
            raise _braid.InvalidArgument("this Trainer trains already, in another thread or around the callback that "
                                         "asks it to: one fit or step at a time")

    def _fit(self, steps, epochs, calls, resume, overwrite):
        """A run, with its callbacks' steps and evaluations."""
        steps, epochs = self._steps_of(steps, epochs)
        self._take_steps()
        if not resume:
            self._need()
        if self._step:
            steps = self._total(steps, epochs) + self._step
            epochs = None
        text, history = self._job(steps, epochs), calls.history
        is_arrays = isinstance(self.data, _data.Arrays)
        replaces = overwrite or (self.checkpoint and self._step)
        start = "resume changed" if resume == "changed" else "resume" if resume else "overwrite" if replaces else "new"
        with sigterm_raises():
            code, result, values, losses, raised = _braid.train(
                text, self._data_dir, start,
                self._rows(self.data) if is_arrays else None, self._test_rows() if is_arrays else None,
                {name: to_native(value) for name, value in self._values.items()}, self._step, calls.every,
                calls.on_step if calls.steps else None, calls.on_border if calls.borders else None, calls.on_evaluate,
                self._rates(steps, epochs))
        if result:
            history.result = json.loads(result)
            self._step = history.result["last_step"]
            self._set_values({name: from_native(value) for name, value in values.items()
                              if not _is_slice(name, values)})
            self._find_elsewhere()
        history["loss"] += [loss for _, loss in losses]
        history.exit = code
        if raised is not None:
            raise raised
        if code == 143 and not calls.asked_to_stop:
            raise SystemExit(143)

    def _total(self, steps, epochs):
        if steps is not None:
            return steps
        return max(1, round(epochs * self._steps_per_epoch()))

    def _eval_arrays(self):
        """The columns of the eval_data as they were given, of strings too."""
        data = self._eval_given
        return dict(data.arrays if isinstance(data, _data.Arrays) else self._rows(data).arrays())

    def _test_rows(self):
        return None if self.eval_data is None else self._rows(self.eval_data)

    def step(self, batch: Mapping[str, Any]) -> StepResult:
        """One training step on a batch: a dict of arrays by column, of the data's batch size; alone in this process.
        Returns a StepResult. Arrays of the columns' types are read in place."""
        self._begin_alone()  # not `with`, which takes a third of what Python adds to a step
        try:
            return self._single_step(batch)
        finally:
            self._at_work.release()

    def _single_step(self, batch):
        if self._elsewhere:
            self._need()
        if self._steps is not None and self._steps.done() >= self._rates_known:
            self._take_steps()
        if self._steps is None:
            self._rates_known = 2 * self._step + 1000 if isinstance(self._options["schedule"], Factors) else MANY
            self._steps = _braid.Steps(self._job(steps=MANY), self._rows(self.data),
                                       {k: to_native(v) for k, v in self._values.items()}, self._step,
                                       self._rates(self._rates_known))
            self._feeds = [(name, dtypes.of_number(number).numpy, tuple(shape))
                           for name, number, shape in self._steps.feeds()]
        batch = self.source.numbers(batch) if self.source is not None else batch
        arrays = []
        for name, kind, shape in self._feeds:
            if name not in batch:
                raise _braid.InvalidArgument(f"the batch has no column '{name}': it has {', '.join(batch) or 'none'}")
            value = batch[name]
            if type(value) is not np.ndarray or value.dtype != kind or not value.flags.c_contiguous:
                value = np.ascontiguousarray(value, dtype=kind)
            if value.shape != shape:
                raise _braid.InvalidArgument(f"column '{name}' must be {shape}, got {value.shape}")
            arrays.append(value)
        return StepResult(*self._steps.step(arrays))

    def _take_steps(self):
        """What single steps have made of the variables."""
        if self._steps is None:
            return
        self._step = self._steps.done()
        values = {name: from_native(value) for name, value in self._steps.values().items()}
        self._steps = None
        self._set_values(values)
