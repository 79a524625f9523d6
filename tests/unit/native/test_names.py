"""How native functions are called in texts for people."""

from __future__ import annotations

import pytest

from profd.daemon.native import names
from profd.daemon.native.names import NamedFrame, above_python, demangled, short


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("take_gil", "take_gil"),
        ("take_gil.lto_priv.0", "take_gil"),
        ("torch::autograd::Engine::thread_main(std::shared_ptr<X> const&)",
         "torch::autograd::Engine::thread_main"),
        ("void at::native::(anonymous namespace)::run<float, 4>(int)",
         "at::native::{anonymous}::run"),
        ("c10::operator<<(std::ostream&, c10::Device const&)", "c10::operator"),
        ("A<int>::operator()(int) const", "A::operator()"),
        ("f(int)::{lambda()#1}::operator->() const", "f::{lambda#1}::operator->"),
        ("f(int) [clone .cold]", "f"),
    ],
)  # fmt: skip
def test_a_name_has_no_arguments(written: str, said: str) -> None:
    assert short(written) == said


def test_names_of_rust_and_c_plus_plus_are_those_of_the_source() -> None:
    assert demangled("_RNvNtCs1234_5tokio4park5inner") == "tokio::park::inner"
    assert demangled("pthread_cond_wait") == "pthread_cond_wait"
    if names._demangler():
        assert demangled("_ZN3c104impl4waitEi") == "c10::impl::wait(int)"
        assert demangled("_ZN4core3ptr4drop17h0123456789abcdefE") == "core::ptr::drop"


def test_without_the_library_of_c_plus_plus_a_name_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(names, "_demangler", lambda: None)
    assert demangled.__wrapped__("_ZN3c104impl4waitEi") == "_ZN3c104impl4waitEi"


def frames(*found: str) -> list[NamedFrame]:
    return [NamedFrame(name, "libx.so") for name in found]


@pytest.mark.parametrize(
    "python", ["_PyEval_EvalFrameDefault", "_TAIL_CALL_CALL", "PyEval_EvalFrameEx"]
)
def test_frames_end_at_the_first_that_runs_python_and_leave_out_how_it_calls(python: str) -> None:
    stack = frames("futex_wait", "", "cfunction_call", "_PyObject_MakeTpCall", python, "main")
    assert above_python(stack) == (["futex_wait (libx.so)", "? (libx.so)"], True)


def test_a_thread_without_python_has_all_its_frames_but_how_it_began() -> None:
    begins = [NamedFrame("", "libc.so.6"), NamedFrame("", "libc.so.6")]
    stack = [*frames("epoll_wait", "uv_run", "start_thread", "clone3"), *begins]
    assert above_python(stack) == (["epoll_wait (libx.so)", "uv_run (libx.so)"], False)
