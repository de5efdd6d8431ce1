"""Training data: its order, its batches, and the windows of a text."""

import numpy as np
import pytest

from accel_bench.data import feed, tasks, text


def test_epochs_have_everything_once_in_an_order_of_their_own():
    source = np.arange(100)
    order = feed.batches(source, 10, 5, 30)
    whole = np.stack([np.asarray(order[number]) for number in range(30)])
    epochs = whole.reshape(3, 100)
    for epoch in epochs:
        np.testing.assert_array_equal(np.sort(epoch), source)
    assert not np.array_equal(epochs[0], epochs[1])
    assert not np.array_equal(epochs[0], np.asarray(feed.batches(source, 100, 6, 1)[0]))


def test_a_feed_begins_at_any_batch_without_those_before_it():
    source, looked_at = np.arange(100), []

    def place(batch):
        looked_at.append(batch)
        return batch

    order = feed.batches(source, 10, 5, 10**6 + 3)
    begun = feed.Feed(source, 10, 5, range(10**6, 10**6 + 3), place)
    for number in range(10**6, 10**6 + 3):
        np.testing.assert_array_equal(begun.next(), order[number])
    with pytest.raises(StopIteration):
        begun.next()
    assert len(looked_at) == 3
    assert begun.wait_s > 0


def test_replicas_are_dealt_the_rows_of_each_step():
    tokens = np.arange(12)[:, None]  # 2 steps, 3 replicas, 2 rows each
    dealt = feed.dealt(tokens, 3, 2).reshape(3, 2, 2)  # replica, step, row
    assert set(dealt[:, 0].ravel()) == set(range(6))  # step 0, on all replicas
    np.testing.assert_array_equal(feed.dealt(tokens, 3, 1), tokens)


def test_the_last_batch_of_held_out_data_is_padded_with_what_does_not_count():
    batches = list(tasks.padded_batches(np.arange(7)[:, None], 3))
    assert [tokens.shape for tokens, _ in batches] == [(3, 1)] * 3
    assert np.concatenate([w for _, w in batches]).tolist() == [1.0] * 7 + [0.0] * 2


def test_windows_of_a_text_lie_side_by_side_and_none_is_held_out_too(tmp_path):
    file = tmp_path / "text"
    file.write_bytes(bytes(range(200)))
    train, held_out = text.load(str(file), 5)
    assert [train[i].tolist() for i in (0, 1)] == [[0, 1, 2, 3, 4, 5], [5, 6, 7, 8, 9, 10]]
    assert max(train[len(train) - 1]) < 180 <= min(held_out[0])
    assert len(text.load("", 128)[0]) > 1000
