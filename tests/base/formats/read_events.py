"""Reads what event_file_test.cc wrote, by TensorBoard's own reader."""

import sys

from tensorboard.backend.event_processing import event_accumulator
from tensorboard.plugins.hparams import plugin_data_pb2

events = event_accumulator.EventAccumulator(sys.argv[1], size_guidance={event_accumulator.TENSORS: 0})
events.Reload()
assert [(e.step, e.value) for e in events.Scalars("loss")] == [(1, 0.5), (7, 0.25)], events.Scalars("loss")
histogram = events.Histograms("dense/kernel")[0].histogram_value
assert (histogram.num, histogram.min, histogram.max, histogram.sum) == (5, -1, 2, 2), histogram
assert sum(histogram.bucket) == 5 and len(histogram.bucket) == len(histogram.bucket_limit), histogram
assert all(a < b for a, b in zip(histogram.bucket_limit, histogram.bucket_limit[1:]))
assert events.Tensors("job")[0].tensor_proto.string_val[0] == b'name: "x"'
graph = events.Graph()
assert [(n.name, n.op, n.device, list(n.input)) for n in graph.node] == [
    ("a", "Placeholder", "", []),
    ("b", "MatMul", "/stream:compute0", ["a"]),
], graph
metadata = events.SummaryMetadata("_hparams_/session_start_info")
data = plugin_data_pb2.HParamsPluginData.FromString(metadata.plugin_data.content)
assert data.session_start_info.hparams["learning_rate"].number_value == 0.01, data
assert data.session_start_info.hparams["optimizer"].string_value == "ADAM", data
print("read by TensorBoard")
