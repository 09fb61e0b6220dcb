"""The methods of a dataset are to a script what TensorFlow has made them."""

from __future__ import annotations

import inspect

import tensorflow as tf

from worker.input.seeding import in_order


def test_methods_keep_their_documentation_and_arguments() -> None:
    before = {name: getattr(tf.data.Dataset, name) for name in ("batch", "interleave", "map")}
    with in_order():
        for name, method in before.items():
            replaced = getattr(tf.data.Dataset, name)
            assert replaced is not method
            assert replaced.__doc__ == method.__doc__
            assert inspect.signature(replaced) == inspect.signature(method)
    assert {name: getattr(tf.data.Dataset, name) for name in before} == before
