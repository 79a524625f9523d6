"""What a thread waits in, by the names of its native functions."""

from __future__ import annotations

import re

import pytest

from profd.daemon.native.operations import entries, innermost, operation_in

COND = ("? (libc.so.6)", "pthread_cond_wait (libc.so.6)")
EXAMPLES = {
    "gloo's allreduce": (
        *COND,
        "gloo::transport::tcp::UnboundBuffer::waitRecv (libtorch_cpu.so)",
        "gloo::{anonymous}::allreduce (libtorch_cpu.so)",
        "c10d::ProcessGroupGloo::AsyncWork::execute (libtorch_cpu.so)",
    ),
    "gloo's send or receive": (
        "gloo::transport::tcp::UnboundBuffer::waitSend (libtorch_cpu.so)",
        "c10d::{anonymous}::SendWork::wait (libtorch_cpu.so)",
    ),
    "ncclAllReduce": ("ncclAllReduce (libnccl.so.2)", "c10d::ProcessGroupNCCL::x (libtorch.so)"),
    "a wait for a collective of torch.distributed": (*COND, "c10d::Work::wait (libtorch_cpu.so)"),
    "the job's store": ("recv (libc.so.6)", "c10d::TCPStore::doGet (libtorch_cpu.so)"),
    "cudaStreamSynchronize": ("? (libcuda.so.1)", "cudaStreamSynchronize (libcudart.so.13)"),
    "cuEventSynchronize": ("poll (libc.so.6)", "cuEventSynchronize (libcuda.so.1)"),
    "an allocation of GPU memory": ("? (libcuda.so.1)", "cudaMalloc (libcudart.so.13)"),
    "an allocation of memory": ("? (libc.so.6)", "malloc (libc.so.6)", "f (libx.so)"),
    "autograd's wait for its worker": (
        *COND,
        "torch::autograd::Engine::execute (libtorch_cpu.so)",
    ),
    "a wait of OpenMP's threads": ("? (libgomp.so.1.0.0)", "normalize (libn.so)"),
    "a query of DNS": ("poll (libc.so.6)", "__res_context_send (libc.so.6)"),
    "the look-up of a host's name": ("recvmsg (libc.so.6)", "getaddrinfo (libc.so.6)"),
    "a call of the file system (openat64)": ("__openat64_nocancel (libc.so.6)",),
}


@pytest.mark.parametrize(("does", "frames"), EXAMPLES.items())
def test_frames_say_the_operation(does: str, frames: tuple[str, ...]) -> None:
    found = operation_in(frames)
    assert found is not None
    assert found.text == does


def test_each_entry_has_an_example_and_a_source() -> None:
    for entry in entries():
        assert entry.source
        assert any(
            re.search(entry.frame, frame) for frames in EXAMPLES.values() for frame in frames
        ), entry.does


@pytest.mark.parametrize(
    "frames",
    [
        (),
        COND,
        ("ncclAllReduceMine (libmine.so)",),
        ("mallocator (libmine.so)",),
        ("getaddrinfo (libmine.so)",),
        ("blas_thread_server (libopenblas.so)",),
    ],
)
def test_other_frames_say_none(frames: tuple[str, ...]) -> None:
    assert operation_in(frames) is None


@pytest.mark.parametrize(
    ("waits", "worker", "is_awaited"),
    [
        ("? (libgomp.so.1)", ("read (libc.so.6)", "f (libn.so)", "? (libgomp.so.1)"), True),
        ("? (libgomp.so.1)", (*COND, "? (libgomp.so.1)", "? (libgomp.so.1)"), False),
        ("? (libgomp.so.1)", ("read (libc.so.6)", "f (libn.so)"), False),
        (
            "c10d::Work::wait (libtorch_cpu.so)",
            (*COND, "c10d::ProcessGroupGloo::runLoop (libtorch_cpu.so)"),
            False,
        ),
        (
            "c10d::Work::wait (libtorch_cpu.so)",
            EXAMPLES["gloo's allreduce"],
            True,
        ),
        ("getaddrinfo (libc.so.6)", EXAMPLES["gloo's allreduce"], False),
    ],
)
def test_a_thread_with_work_is_what_the_wait_is_for(
    waits: str, worker: tuple[str, ...], is_awaited: bool
) -> None:
    found = operation_in([waits])
    assert found is not None
    assert found.waits_for(worker) is is_awaited


def test_the_innermost_frame_is_none_of_the_libraries_of_c_and_cpp() -> None:
    frames = (*COND, "std::condition_variable::wait (libstdc++.so.6)", "f (libn.so)", "g (libn.so)")
    assert innermost(frames) == "f (libn.so)"
    assert innermost(COND) == ""
