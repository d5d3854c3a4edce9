"""Settings of Paddle's OpenMP library are those of one thread, and are put back."""

from __future__ import annotations

import threading

import pytest

from paddle_fluid_boost.engines import openmp

shipped = pytest.mark.skipif(openmp._openmp is None, reason="Paddle ships no OpenMP library here")


@shipped
def test_threads_are_those_of_the_calling_thread_and_put_back():
    before, elsewhere = openmp.math_threads(), []
    with pytest.raises(KeyError), openmp.threads(before + 2):
        assert openmp.math_threads() == before + 2
        other = threading.Thread(target=lambda: elsewhere.append(openmp.math_threads()))
        other.start()
        other.join()
        raise KeyError
    assert openmp.math_threads() == before
    assert before + 2 not in elsewhere


@shipped
def test_a_team_sleeps_at_once_only_inside():
    library = openmp._openmp
    assert library is not None
    found = library.kmp_get_blocktime()  # 0 where there are more threads than processors
    library.kmp_set_blocktime(70)
    try:
        with openmp.sleeping_team():
            assert library.kmp_get_blocktime() == 0
        assert library.kmp_get_blocktime() == 70
    finally:
        library.kmp_set_blocktime(found)
