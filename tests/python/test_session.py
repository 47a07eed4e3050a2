"""Sessions: state, feeds without copies, sources, stages, memory."""

import gc
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import braid as bd
from braid import _braid


@pytest.fixture(autouse=True)
def graph():
    with bd.Graph() as made:
        yield made


def test_variables_live_with_the_session():
    count = bd.variable("count", [])
    add = count.assign_add(np.float32(1))
    with bd.Session() as one, bd.Session() as other:
        for _ in range(3):
            one.run(add)
        other.run(add)
        assert float(one.run(count)) == 3 and float(other.run(count)) == 1


def test_a_variable_without_a_value_is_refused(graph):
    unset = graph.add_variable("unset", [2])
    with bd.Session() as session:
        with pytest.raises(bd.InvalidArgument, match="unset"):
            session.run(unset)
        session.assign(unset, [1, 2])
        assert session.run(unset).tolist() == [1, 2]


def test_a_placeholder_that_is_not_fed_is_named():
    x = bd.placeholder("features", [None, 3])
    with bd.Session() as session, pytest.raises(bd.InvalidArgument, match="'features'.*not fed"):
        session.run(x + 1.0)


def test_aligned_feeds_are_not_copied_and_are_released():
    x = bd.placeholder("x", [None])
    y = bd.ops.reduce_sum(x)
    value = np.ones(1 << 20, np.float32)
    with bd.Session() as session:
        before = _braid.bytes_in()
        for _ in range(3):
            assert float(session.run(y, {x: value})) == 1 << 20
        after = _braid.bytes_in()
        assert after[0] - before[0] == 3 * value.nbytes and after[1] == before[1]
        import sys
        gc.collect()
        assert sys.getrefcount(value) == 2


class Foreign:
    """Memory that is no buffer and comes by DLPack, as tensors of PyTorch and JAX."""

    def __init__(self, value):
        self.value, self.dtype, self.shape = value, value.dtype, value.shape

    def __dlpack__(self, **settings):
        return self.value.__dlpack__(**settings)

    def __dlpack_device__(self):
        return self.value.__dlpack_device__()


@pytest.mark.parametrize("kind", ["float32", "int64", "bool"])
def test_feeds_by_dlpack_are_not_copied_and_are_released(kind):
    x = bd.placeholder("x", [None, 4], kind)
    y = bd.ops.cast(x, "float32")
    value = (np.arange(4096).reshape(-1, 4) % 7).astype(kind)
    with bd.Session() as session:
        before = _braid.bytes_in()
        np.testing.assert_array_equal(session.run(y, {x: Foreign(value)}), value.astype(np.float32))
        after = _braid.bytes_in()
        assert (after[0] - before[0], after[1] - before[1]) == (value.nbytes, 0)
        session.run(y, {x: Foreign(value)})
        gc.collect()
        import sys
        assert sys.getrefcount(value) == 2


def test_feeds_by_dlpack_of_wrong_kinds_are_refused_or_converted():
    x = bd.placeholder("x", [None, 4])
    with bd.Session() as session:
        wide = np.ones((8, 8), np.float32)[:, ::2]
        with pytest.raises(bd.InvalidArgument, match="row-major"):
            session.run(x, {x: Foreign(wide)})
        assert session.run(x, {x: np.ones((2, 4), np.float64)}).dtype == np.float32


def test_tensors_of_pytorch_are_read_in_place():
    torch = pytest.importorskip("torch", exc_type=ImportError)
    x = bd.placeholder("x", [None])
    value, total = torch.arange(1024, dtype=torch.float32), bd.ops.reduce_sum(x)
    with bd.Session() as session:
        before = _braid.bytes_in()
        assert float(session.run(total, {x: value})) == 1023 * 512
        after = _braid.bytes_in()
        assert after[0] - before[0] == 4096 and after[1] == before[1]
        try:  # what lets a tensor out that needs gradients depends on PyTorch's version
            found = session.run(total, {x: value.clone().requires_grad_()})
        except bd.InvalidArgument as error:
            assert "detached" in str(error)
        else:
            assert float(found) == 1023 * 512


def test_results_outlive_the_session():
    with bd.Session() as session:
        value = session.run(bd.constant(np.arange(1000, dtype=np.float32)) * 2.0)
    del session
    gc.collect()
    np.testing.assert_array_equal(value, np.arange(1000) * 2)


def test_structures_of_fetches():
    x = bd.constant([1.0, 2.0])
    with bd.Session() as session:
        found = session.run({"a": x, "b": [x * 2.0, (x + 1.0).op]})
        assert found["a"].tolist() == [1, 2] and found["b"][0].tolist() == [2, 4] and found["b"][1] is None
        assert f"{session.run(bd.ops.reduce_sum(x)):.1f}" == "3.0"


def test_text_goes_in_and_out():
    x = bd.placeholder("x", [None], bd.string)
    with bd.Session() as session:
        ids = session.run(bd.ops.string_to_hash_bucket_fast(x, 10), {x: ["a", "b", "a"]})
        assert ids[0] == ids[2]
        assert session.run(bd.ops.as_string(bd.constant([1, 2]))).tolist() == [b"1", b"2"]


def test_stage_over_a_source(graph):
    x = bd.placeholder("x", [2])
    seen = []

    def make():
        numbers = iter(range(5))

        def read(ticket):
            i = next(numbers)
            seen.append(i)
            return [np.full(2, i, np.float32)]

        return read

    graph.sources.append(([x], make))
    (staged,) = bd.staged([x * 10.0], capacity=2)
    total = bd.ops.reduce_sum(staged)
    with bd.Session() as session:
        assert [float(session.run(total)) for _ in range(5)] == [0, 20, 40, 60, 80]
        with pytest.raises(bd.OutOfRange):
            session.run(total)
        with pytest.raises(EOFError):
            session.run(total)
    assert seen == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("end", ["session.close()", "", "raise SystemExit(0)"])
def test_a_program_ends_while_a_stage_reads(end):
    program = textwrap.dedent("""
        import numpy as np
        import braid as bd

        def read(ticket):
            total = 0
            for i in range(300_000):  # the interpreter switches threads on the way
                total += i
            return [np.full(2, ticket, np.float32)]

        x = bd.placeholder("x", [2])
        bd.graph.default_graph().sources.append(([x], lambda: read))
        (staged,) = bd.staged([x * 10.0], capacity=4)
        session = bd.Session()
        print(session.run(staged))
    """) + end
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stderr) == (0, "")


def test_a_hundred_thousand_runs_do_not_grow():
    x, w = bd.placeholder("x", [8, 4]), bd.variable("w", [4, 2], ("normal", 0, 1))
    loss = bd.ops.reduce_mean((x @ w) ** 2)
    step = bd.optim.SGD(0.001).minimize(loss)
    value = np.ones((8, 4), np.float32)

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    with bd.Session(threads=1) as session:
        for _ in range(1000):
            session.run([step, loss], {x: value})
        gc.collect()
        before = resident()
        for _ in range(100_000):
            session.run([step, loss], {x: value})
        gc.collect()
        assert resident() - before < 1 << 20


def test_what_is_fed_and_fetched_is_a_copy():
    x = bd.placeholder("x", [None, 4])
    array = np.ones((4, 4), np.float32)
    with bd.Session() as session:
        fetched = np.asarray(session.run(x, {x: array}))
        assert not np.shares_memory(fetched, array) and (fetched == 1).all()


def test_feeds_that_are_no_numbers_are_named():
    x = bd.placeholder("x", [None, 4])
    with bd.Session() as session:
        for wrong in (None, np.array([["a"] * 4], dtype=object), b"abc", [[1, 2], [3]]):
            with pytest.raises(bd.InvalidArgument, match="feed 'x:?0?': "):
                session.run(x, {x: wrong})


@pytest.mark.parametrize("wrong", [{"streams": 0}, {"streams": 65}, {"streams": 10**6}, {"threads": -1},
                                   {"threads": 10**6}, {"timeout": 0}, {"timeout": -1}, {"timeout": float("nan")}])
def test_settings_out_of_range_are_named(wrong):
    with pytest.raises(bd.InvalidArgument, match=next(iter(wrong))):
        bd.Session(**wrong)


def test_a_timeout_may_be_endless():
    x = bd.placeholder("x", [])
    for seconds in (float("inf"), 1e300):
        with bd.Session(timeout=seconds) as session:
            assert session.run(x + 1, {x: 1.0}) == 2


def test_a_forked_child_with_a_session_of_its_parent_ends():
    program = """
        import os, sys
        import braid as bd
        x = bd.placeholder("x", [])
        session = bd.Session()
        session.run(x, {x: 1.0})
        child = os.fork()
        if child == 0:
            session.close()
            sys.exit(3)  # with all that an interpreter does at its end
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], timeout=60, capture_output=True, text=True)
    assert done.returncode == 3, done.stderr


@pytest.mark.parametrize("end", ["", "session.close()", "del session", "os.kill(os.getpid(), signal.SIGINT)"])
def test_a_source_that_never_returns_does_not_hold_the_program(end):
    program = textwrap.dedent("""
        import os, signal, threading, time
        import numpy as np
        import braid as bd

        def read(ticket):
            if ticket > 0:
                stuck.set()
                time.sleep(1000)
            return [np.full(2, ticket, np.float32)]

        stuck = threading.Event()
        x = bd.placeholder("x", [2])
        bd.graph.default_graph().sources.append(([x], lambda: read))
        (staged,) = bd.staged([x * 10.0], capacity=2)
        session = bd.Session()
        session.run(staged)
        assert stuck.wait(20)
        threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            END
        except KeyboardInterrupt:
            print("interrupted")
    """).replace("END", end or "pass")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode >= 0 and "Fatal" not in done.stderr, (done.returncode, done.stderr)
    if end == "session.close()":
        assert "interrupted" in done.stdout
