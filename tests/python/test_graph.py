"""Graphs: types and shapes at once, operators, gradients, layers, files."""

import numpy as np
import pytest

import braid as bd


@pytest.fixture(autouse=True)
def graph():
    with bd.Graph() as made:
        yield made


def run(value, feeds=None):
    with bd.Session() as session:
        return session.run(value, feeds)


def test_types_and_shapes_are_known_at_once():
    x = bd.placeholder("x", [None, 3])
    y = bd.ops.matmul(x, np.ones((3, 2), np.float32)) + 1.0
    assert y.dtype == bd.float32 and y.shape == (None, 2)
    assert bd.ops.cast(y, bd.int32).dtype == bd.int32


def test_operators_and_slices():
    x = bd.placeholder("x", [4, 3])
    value = np.arange(12, dtype=np.float32).reshape(4, 3)
    for made, expected in ((x * 2 - 1, value * 2 - 1), (1 / (x + 1), 1 / (value + 1)), (x[1:3, 0], value[1:3, 0]),
                           (x[-1], value[-1]), (x[..., None], value[..., None]), (-x, -value), (x**2, value**2),
                           (x[:, ::2], value[:, ::2])):
        np.testing.assert_allclose(run(made, {x: value}), expected, rtol=1e-6)


def test_reductions_and_shapes():
    value = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    x = bd.placeholder("x", [None, 4])
    for made, expected in ((bd.ops.reduce_sum(x), value.sum()), (bd.ops.reduce_mean(x, 1), value.mean(1)),
                           (bd.ops.reduce_max(x, 0, keepdims=True), value.max(0, keepdims=True)),
                           (bd.ops.concat([x, x], -1), np.concatenate([value, value], -1)),
                           (bd.ops.transpose(x), value.T), (bd.ops.reshape(x, [-1, 2]), value.reshape(-1, 2)),
                           (bd.ops.stack([x, x]), np.stack([value, value]))):
        np.testing.assert_allclose(run(made, {x: value}), expected, rtol=1e-5)


def test_a_wrong_node_is_refused_with_its_name():
    x = bd.placeholder("x", [2, 3])
    with pytest.raises(bd.InvalidArgument, match="MatMul") as error:
        bd.ops.matmul(x, np.ones((2, 2), np.float32), name="product")
    assert error.value.op == "MatMul" and error.value.node == "product"


def test_every_registered_op_has_a_documented_function():
    for name in bd.ops.names():
        function = getattr(bd.ops, bd.ops._snake(name), None)
        assert function is not None and function.__doc__, name


def test_gradients_of_dense_variables_and_of_rows():
    w, table = bd.variable("w", [3], ("constant", 2.0)), bd.variable("table", [5, 3], ("constant", 1.0), sparse=True)
    rows = bd.ops.call("ResourceGather", [table.handle, np.array([1, 4])], {"dtype": bd.float32})
    found = bd.gradients(bd.ops.reduce_sum(rows * w))
    indices, values = run(list(found[table]))
    assert indices.tolist() == [1, 4] and (values == 2.0).all()
    np.testing.assert_allclose(run(found[w]), [2.0, 2.0, 2.0])


def test_gradient_of_a_layer_agrees_with_differences():
    x = bd.placeholder("x", [4, 3])
    loss = bd.ops.reduce_mean(bd.nn.layer_norm(bd.nn.dense(x, 5, "tanh")) ** 2 * np.arange(5, dtype=np.float32))
    kernel = next(v for v in bd.graph.default_graph().variables if v.variable_name == "dense/kernel")
    gradient = bd.gradients(loss)[kernel]
    value = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
    with bd.Session() as session:
        found = session.run(gradient, {x: value})
        base = session.value(kernel)
        for place in ((0, 0), (2, 3)):
            moved = [base.copy(), base.copy()]
            moved[0][place] += 1e-2
            moved[1][place] -= 1e-2
            losses = []
            for each in moved:
                session.assign(kernel, each)
                losses.append(float(session.run(loss, {x: value})))
            assert abs((losses[0] - losses[1]) / 2e-2 - found[place]) < 2e-3


@pytest.mark.parametrize("optimizer", [bd.optim.SGD(0.1), bd.optim.Momentum(0.1), bd.optim.Adagrad(0.1),
                                       bd.optim.Adam(0.05), bd.optim.Ftrl(0.5), bd.optim.RMSProp(0.05)],
                         ids=lambda each: each.kind)
def test_optimizers_train_in_a_session(optimizer):
    rng = np.random.default_rng(0)
    features, weights = rng.normal(size=(64, 3)).astype(np.float32), np.array([1.0, -2.0, 0.5], np.float32)
    x, y = bd.placeholder("x", [None, 3]), bd.placeholder("y", [None])
    w = bd.variable("w", [3, 1])
    loss = bd.ops.reduce_mean((bd.ops.squeeze(bd.ops.matmul(x, w), [-1]) - y) ** 2)
    step = optimizer.minimize(loss)
    feeds = {x: features, y: features @ weights}
    with bd.Session() as session:
        before = float(session.run(loss, feeds))
        for _ in range(100):
            session.run(step, feeds)
        assert float(session.run(loss, feeds)) < 0.1 * before


def test_layers_have_their_shapes():
    x = bd.placeholder("x", [None, 6, 8])
    assert bd.nn.attention(x, x, x, heads=2).shape == (None, 6, 8)
    assert bd.nn.gru(x, 5).shape == (None, 5)
    image = bd.placeholder("image", [None, 8, 8, 3])
    assert bd.nn.conv2d(image, 4, strides=2).shape == (None, 4, 4, 4)
    assert bd.nn.dense(x, 3).shape == (None, 6, 3)
    value = np.random.default_rng(0).normal(size=(2, 6, 8)).astype(np.float32)
    assert run(bd.nn.attention(x, x, x, heads=2), {x: value}).shape == (2, 6, 8)


def test_graph_goes_through_a_file(tmp_path, graph):
    x = bd.placeholder("x", [None, 3])
    y = bd.ops.identity(bd.nn.dense(x, 2), name="y")
    graph.write(tmp_path / "g.pbtxt")
    loaded = bd.Graph.load(tmp_path / "g.pbtxt")
    value = np.ones((2, 3), np.float32)
    with bd.Session() as session:
        expected = session.run(y, {x: value})
    with bd.Session(loaded) as session:
        np.testing.assert_array_equal(session.run("y:0", {"x": value}), expected)


def test_streams_colocation_and_devices_are_written(graph):
    x = bd.placeholder("x", [2, 2])
    with bd.stream(3):
        a = bd.ops.relu(x)
    with bd.colocate(a), bd.device("/cpu:0"):
        b = bd.ops.relu(a)
    assert graph.native.node(a.node)[5] == 3
    assert graph.native.node(b.node)[6] == "/cpu:0"
    np.testing.assert_array_equal(run(b, {x: np.eye(2, dtype=np.float32)}), np.eye(2))
