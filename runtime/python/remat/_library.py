"""The shared library with passes and runtime: loaded once, after it was seen to fit, and called."""

from __future__ import annotations

import contextlib
import ctypes
import json
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from . import _build
from ._errors import RematError, error_of

_PATH = Path(__file__).with_name("libremat_python.so")
_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)
_NO_PROGRESS = _Callback()


def _check_torch() -> None:
    built, here = _build.TORCH.split(".")[:2], str(torch.__version__).split(".")[:2]
    if built != here:
        raise ImportError(
            f"remat {_build.VERSION} was built with torch {_build.TORCH} and needs a torch {'.'.join(built)}; "
            f"torch {torch.__version__} is installed. Install torch=={'.'.join(built)}.*, or build remat for yours "
            "(tools/wheel.sh)"
        )
    if _build.CUDA and torch.version.cuda is None:
        raise ImportError(
            f"remat {_build.VERSION} was built with a torch that has CUDA; torch {torch.__version__} has none. Install "
            f"torch=={'.'.join(built)}.* with CUDA (it runs without a GPU, too), or build remat without CUDA "
            "(tools/wheel.sh --config=cpu)"
        )
    if torch._C._jit_get_schemas_for_operator("remat::checkpoint"):
        raise ImportError(
            "remat's operators are there already, from libremat_runtime.so or another library that holds them, and "
            "can't be registered twice: import remat in place of loading that library"
        )


def _load() -> ctypes.CDLL:
    _check_torch()
    if not _PATH.exists():
        raise ImportError(f"{_PATH} is missing: install remat from its wheel (tools/wheel.sh builds it)")
    try:
        library = ctypes.CDLL(str(_PATH))
    except OSError as error:
        raise ImportError(
            f"{_PATH} can't be loaded here: {error}. Build remat on this system (tools/wheel.sh)"
        ) from error
    library.remat_set_progress.argtypes = [_Callback]
    library.remat_set_progress.restype = None
    return library


_library = _load()


class _OneAtATime:
    """Steps are measured: other threads wait. What is called from `progress` would wait for itself."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: int | None = None

    def __enter__(self) -> None:
        if self._thread == threading.get_ident():
            raise RematError("remat was called from progress: call it when the call that runs has come back")
        self._lock.acquire()
        self._thread = threading.get_ident()

    def __exit__(self, *_: object) -> None:
        self._thread = None
        self._lock.release()


_one_at_a_time = _OneAtATime()


class _Progress:
    """The caller's `progress`, and what it or an interrupt raised: nothing of that must get into C++."""

    def __init__(self, progress: Callable[[str], object] | None) -> None:
        self._progress = progress
        self._inside = False
        self.raised: list[BaseException] = []

    def report(self, text: bytes) -> int:
        try:
            if self._progress is not None and not self.raised:
                self._inside = True
                try:
                    self._progress(text.decode())
                finally:
                    self._inside = False
        except BaseException as error:
            self.raised.append(error)
        return len(self.raised)

    def interrupt(self, *_: object) -> None:
        """Outside of the caller's code it would go off at the callback's first instruction, where nothing can catch
        it: the next report ends the work."""
        if self._inside:
            raise KeyboardInterrupt
        self.raised.append(KeyboardInterrupt())


@contextlib.contextmanager
def _interrupts(progress: _Progress) -> Iterator[None]:
    """Ctrl-C ends the work. A handler of the caller's own is left alone."""
    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, progress.interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def call(
    operator: str,
    module: torch.jit.ScriptModule,
    inputs: tuple[Any, ...],
    options: Mapping[str, Any],
    progress: Callable[[str], object] | None = None,
) -> tuple[Any, dict[str, Any]]:
    """What an operator gives: a C++ module or None, and its record; or raises what the record says went wrong.

    `progress` is called on this thread, between the phases. What it raises ends the work and is raised here; so does
    an interrupt from the keyboard.
    """
    reports = _Progress(progress)
    callback = _Callback(reports.report)
    with _one_at_a_time, _interrupts(reports):
        _library.remat_set_progress(callback)
        try:
            answer = getattr(torch.ops.remat, operator)(module, inputs, json.dumps(options))
        except (RuntimeError, TypeError) as error:  # operators report theirs otherwise
            raise TypeError(f"the example inputs are no values that TorchScript has: {error}") from error
        finally:
            _library.remat_set_progress(_NO_PROGRESS)
    if reports.raised:
        raise reports.raised[0]
    made, text = answer if isinstance(answer, tuple) else (None, answer)
    record: dict[str, Any] = json.loads(text)
    if "error" not in record:
        return made, record
    raise error_of(record["error"])
