"""Lines that TensorFlow prints at each start are told from the program's lines."""

from __future__ import annotations

import pytest

from launcher.task_records.task_output import is_chatter

# Real lines: of TensorFlow 2.21 on a CPU, one where a task was lost, and of GPU images of 2.15 to 2.18.
CHATTER = """\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795342904.243870   22071 port.cc:153] oneDNN custom operations are on. You may see slightly
I0000 00:00:1795342904.372171   22071 cpu_feature_guard.cc:227] This TensorFlow binary is optimized to use
To enable the following instructions: AVX2 AVX512F FMA, in other operations, rebuild TensorFlow with
2024-05-01 10:11:12.345678: I tensorflow/core/util/port.cc:113] oneDNN custom operations are on.
2024-05-01 10:11:12.345678: I external/local_tsl/tsl/cuda/cudart_stub.cc:32] Could not find cuda drivers
2024-05-01 10:11:12.345678: E external/local_xla/cuda_dnn.cc:9261] Unable to register cuDNN factory: An
E0000 00:00:1795829957.864080     323 base_collective_executor.cc:252] Base::StartAbort UNAVAILABLE: a
2024-05-01 10:11:12.345678: W tensorflow/compiler/py_utils.cc:38] TF-TRT Warning: Could not find TensorRT
"""
OWN = """\
ValueError: no data
Traceback (most recent call last):
2024-05-01 10:11:12.345678: F tensorflow/core/platform/default/env.cc:74] Check failed: ret == 0
2024-05-01 10:11:12.345678: W tensorflow/core/framework/op_kernel.cc:1839] OP_REQUIRES failed at cast_op.cc
E0000 00:00:1795342904.243870   22071 bfc_allocator.cc:497] Allocator (GPU_0_bfc) ran out of memory
E0000 00:00:1795829957.864080     323 base_collective_executor.cc:252] Base::StartAbort INTERNAL: a
Instructions: read them
"""


@pytest.mark.parametrize("line", CHATTER.splitlines())
def test_chatter(line: str) -> None:
    assert is_chatter(line)


@pytest.mark.parametrize("line", OWN.splitlines())
def test_what_tells_something(line: str) -> None:
    assert not is_chatter(line)
