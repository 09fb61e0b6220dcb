"""Sets which packages AutoGraph does not rewrite."""

from __future__ import annotations

from tensorflow.python.autograph.core import config


def spare_keras() -> None:
    """Keeps AutoGraph from rewriting tf_keras, as TensorFlow does since 2.17. In 2.16 the first step of the
    demo took 40 s, most of them for this.
    """
    rule = config.DoNotConvert("tf_keras")
    if not any(str(rule) == str(known) for known in config.CONVERSION_RULES):
        config.CONVERSION_RULES = (*config.CONVERSION_RULES, rule)
