"""The programs that users have, with one changed import."""

import numpy as np
import pytest

import braid.compat.v1 as tf

X = np.array([[3.3], [4.4], [5.5], [6.71], [6.93], [4.168], [9.779], [6.182], [7.59], [2.167], [7.042], [10.791], [5.313],
              [7.997], [5.654], [9.27], [3.1]], np.float32)
Z = np.array([[1.7], [2.76], [2.09], [3.19], [1.694], [1.573], [3.366], [2.596], [2.53], [1.221], [2.827], [3.465], [1.65],
              [2.904], [2.42], [2.94], [1.3]], np.float32)


@pytest.fixture(autouse=True)
def fresh_graph():
    tf.reset_default_graph()


def multi_stream_config(streams):
    from tensorflow.core.protobuf import rewriter_config_pb2
    config = tf.ConfigProto()
    config.graph_options.rewrite_options.use_multi_stream = rewriter_config_pb2.RewriterConfig.ON
    config.graph_options.rewrite_options.multi_stream_opts.multi_stream_num = streams
    return config


def regression(first, second, colocate=False):
    """Two branches whose sum is fitted; losses of 300 steps, and those of NumPy in float64."""
    with first:
        x = tf.placeholder(tf.float32, [None, 1])
        w_x = tf.Variable(tf.random_normal([1, 1]), name="weight_x")
        b = tf.Variable(tf.zeros([1]), name="bias")
        left = tf.add(tf.matmul(x, w_x), b)
    with second() if callable(second) else second:
        y = tf.placeholder(tf.float32, [None, 1])
        w_y = tf.Variable(tf.random_normal([1, 1]), name="weight_y")
        right = tf.matmul(y, w_y)
    target = tf.placeholder(tf.float32, [None, 1])
    loss = tf.reduce_sum(tf.pow(left + right - target, 2)) / 17
    train = tf.train.GradientDescentOptimizer(0.001).minimize(loss)
    feeds = {x: X, y: X, target: Z}
    with tf.Session(config=multi_stream_config(2)) as session:
        session.run(tf.global_variables_initializer())
        begin = [float(v) for v in session.run([w_x, b, w_y])]
        losses = []
        for step in range(300):
            session.run(train, feed_dict=feeds)
            losses.append(float(session.run(loss, feed_dict=feeds)))
        text = "Step:%d, loss==%.4f, W_X==%.4f, b==%.4f, W_Y=%.4f" % (
            step, losses[-1], session.run(w_x), session.run(b), session.run(w_y))
    assert text.startswith("Step:299, loss==")
    return losses, expected_losses(*begin)


def expected_losses(w_x, b, w_y):
    x, z, losses = X.astype(np.float64), Z.astype(np.float64), []
    for _ in range(300):
        error = x * w_x + b + x * w_y - z
        w, c = 2 * (error * x).sum() / 17, 2 * error.sum() / 17
        w_x, b, w_y = w_x - 0.001 * w, b - 0.001 * c, w_y - 0.001 * w
        losses.append((((x * w_x + b + x * w_y) - z) ** 2).sum() / 17)
    return losses


def test_two_branch_regression_over_two_streams():
    losses, expected = regression(tf.stream(0), lambda: tf.stream(1))
    np.testing.assert_allclose(losses, expected, rtol=1e-4)


def test_colocated_branch():
    anchor = []

    def beside():
        with tf.stream(1):
            anchor.append(tf.constant([1.0]))
        return tf.colocate_with(anchor[0])

    losses, expected = regression(tf.stream(0), beside)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)


def test_stream_scopes_of_tf_cuda(monkeypatch):
    monkeypatch.setenv("TF_GPU_STREAM_GROUP_COUNT", "4")
    monkeypatch.setenv("TF_NODE_LEVEL_MULTISTREAM", "true")
    losses, expected = regression(tf.cuda.stream_scope(tf.cuda.get_stream(2), include_grad=True),
                                  lambda: tf.cuda.stream_scope(tf.cuda.get_stream(3)))
    np.testing.assert_allclose(losses, expected, rtol=1e-4)


def test_staged_text_pipeline_with_its_hook(tmp_path):
    file = tmp_path / "1.txt"
    file.write_text("".join(f"{word},{i}\n" for i, word in enumerate("abcdefghij")))
    filename_queue = tf.train.string_input_producer([str(file)])
    reader = tf.TextLineReader()
    k, v = reader.read(filename_queue)
    var = tf.get_variable("var", shape=[100, 3], initializer=tf.ones_initializer())
    v = tf.train.batch([v], batch_size=2, capacity=20 * 3)
    v0, v1 = tf.decode_csv(v, record_defaults=[[""], [""]], field_delim=",")
    xx = tf.staged([v0, v1])
    xx[0] = tf.string_to_hash_bucket(xx[0], num_buckets=10)
    xx[0] = tf.nn.embedding_lookup(var, xx[0])
    xx[1] = tf.concat([xx[1], ["xxx"]], axis=0)
    target = tf.concat([tf.as_string(xx[0]), [xx[1], xx[1]]], 0)
    tf.train.mark_target_node([target])
    with tf.train.MonitoredTrainingSession(hooks=[tf.make_prefetch_hook()]) as session:
        for i in range(5):
            (found,) = session.run([target])
            rows = [b"1.000000"] * 3
            last = [str(2 * i).encode(), str(2 * i + 1).encode(), b"xxx"]
            assert found.tolist() == [rows, rows, last, last]


def test_the_hash_and_lookup_inside_of_the_stage(tmp_path):
    file = tmp_path / "1.txt"
    file.write_text("a,1\nb,2\n")
    _, v = tf.TextLineReader().read(tf.train.string_input_producer([str(file)], num_epochs=1))
    v0, v1 = tf.decode_csv(tf.train.batch([v], batch_size=2), record_defaults=[[""], [0.0]])
    ids, numbers = tf.staged([tf.string_to_hash_bucket_fast(v0, 100), v1], capacity=2, num_threads=2)
    with tf.train.MonitoredTrainingSession(hooks=[tf.make_prefetch_hook()]) as session:
        runs = 0
        while not session.should_stop():
            found = session.run([ids, numbers])
            runs += 1
            assert found[1].tolist() == [1.0, 2.0]
    assert runs == 1  # the end of the input ends the block


def test_saver_writes_tensorflows_checkpoints(tmp_path):
    w = tf.get_variable("w", initializer=np.arange(6, dtype=np.float32).reshape(2, 3))
    saver = tf.train.Saver()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(w.assign(w * 2.0))
        prefix = saver.save(session, str(tmp_path / "model"), global_step=7)
    assert prefix.endswith("model-7") and tf.train.latest_checkpoint(str(tmp_path)) == prefix
    with tf.Session() as session:
        saver.restore(session, prefix)
        np.testing.assert_array_equal(session.run(w), np.arange(6).reshape(2, 3) * 2)


def test_monitored_session_stops_saves_and_restores(tmp_path, capsys):
    def build():
        tf.reset_default_graph()
        step = tf.train.get_or_create_global_step()
        w = tf.get_variable("w", [2], initializer=tf.zeros_initializer())
        loss = tf.reduce_sum(tf.square(w - 1.0))
        return w, tf.train.AdamOptimizer(0.1).minimize(loss, global_step=step), loss

    for until in (5, 8):
        w, train, loss = build()
        hooks = [tf.train.StopAtStepHook(last_step=until), tf.train.LoggingTensorHook({"loss": loss}, every_n_iter=2)]
        with tf.train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), hooks=hooks) as session:
            steps = 0
            while not session.should_stop():
                session.run(train)
                steps += 1
        assert steps == (5 if until == 5 else 3)
    assert tf.train.latest_checkpoint(str(tmp_path)).endswith("model.ckpt-8")
    assert "loss =" in capsys.readouterr().out


def test_towers_with_averaged_gradients():
    optimizer, towers = tf.train.GradientDescentOptimizer(0.5), []
    features = tf.placeholder(tf.float32, [8, 3])
    with tf.variable_scope(tf.get_variable_scope()):
        for i in range(2):
            with tf.device("/gpu:%d" % i), tf.name_scope("tower_%d" % i):
                w = tf.get_variable("w", [3, 1], initializer=tf.constant_initializer(0.5))
                loss = tf.reduce_mean(tf.square(tf.matmul(features[4 * i:4 * i + 4], w)))
                tf.get_variable_scope().reuse_variables()
                towers.append(optimizer.compute_gradients(loss))
    averaged = []
    for pairs in zip(*towers):
        stacked = tf.concat(axis=0, values=[tf.expand_dims(gradient, 0) for gradient, _ in pairs])
        averaged.append((tf.reduce_mean(stacked, 0), pairs[0][1]))
    train = optimizer.apply_gradients(averaged)
    value = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    with tf.Session() as session:
        session.run(tf.initialize_all_variables())
        session.run(train, {features: value})
        start = np.full((3, 1), 0.5)
        gradient = 2 * value.T.astype(np.float64) @ (value @ start) / 8
        np.testing.assert_allclose(session.run(w), start - 0.5 * gradient, rtol=1e-5)


def test_what_is_refused_is_named():
    with pytest.raises(ValueError, match="B_IP:1234C_IP:2222"):
        tf.train.ClusterSpec({"worker": ["A_IP:1234", "B_IP:1234C_IP:2222"]})
    with pytest.raises(AttributeError, match="no 'contrib'"):
        tf.contrib.tpu
    with pytest.raises(AttributeError, match="multi_stream_nun"):
        tf.ConfigProto().graph_options.rewrite_options.multi_stream_opts.multi_stream_nun = 2


def test_uninitialized_variables_are_refused():
    w = tf.Variable(tf.zeros([2]), name="w")
    with tf.Session() as session, pytest.raises(tf.errors.FailedPreconditionError, match="'w'"):
        session.run(w)


def test_global_step_and_decay():
    step = tf.train.get_or_create_global_step()
    rate = tf.train.exponential_decay(0.1, step, 1, 0.5, staircase=True)
    w = tf.Variable(4.0)
    train = tf.train.GradientDescentOptimizer(rate).minimize(tf.square(w), global_step=step)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(2):
            session.run(train)
        assert abs(float(session.run(w)) - 4 * 0.8 * 0.9) < 1e-5 and int(session.run(step)) == 2


def test_an_assignment_has_the_value_that_it_leaves():
    w, step = tf.Variable(np.float32([1, 2])), tf.Variable(0, trainable=False)
    more = tf.assign_add(step, 1)
    doubled = w.assign(w * 2.0)
    with tf.control_dependencies([doubled]):
        counted = tf.group(step.assign_add(10))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(more) == 1 and more.eval() == 2
        np.testing.assert_array_equal(session.run([doubled, more])[0], [2, 4])
        np.testing.assert_array_equal(session.run(tf.reduce_sum(doubled) + doubled[0] - 1.0), 4 + 8 + 4 - 1)
        assert session.run(counted) is None
        assert session.run([step, w.op])[0] == 13
        np.testing.assert_array_equal(session.run(w), [8, 16])
