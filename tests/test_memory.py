"""Memory: what does not fit is refused, what is freed is kept for what is asked for next."""

import platform
import subprocess
import sys
import textwrap

import pytest

from softbellman.memory import require_memory

FAULTS = """
    import resource, threading
    from softbellman.memory import keep_freed_memory

    def work(found):
        for _ in range(3):
            b"x" * (40 << 20)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(5):
            b"x" * (40 << 20)
        found.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

    keep_freed_memory()
    found = []
    work(found)
    thread = threading.Thread(target=work, args=(found,))
    thread.start()
    thread.join()
    print(*found)
"""


@pytest.mark.parametrize(
    ("needed", "told"), [(2**40, r"^1,099,511,627,776 bytes"), (10**400, r"^over 1(,000){8} bytes")]
)
def test_what_does_not_fit_is_refused_however_large(needed, told):
    with pytest.raises(MemoryError, match=told + r" needed .* 1,000 available .*: lower trials, to 0\.0% of"):
        require_memory(needed, 1_000, "trials")
    require_memory(needed, None, "trials")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries are left as they are")
@pytest.mark.parametrize("kept", [True, False])
def test_what_is_freed_is_not_fetched_anew(kept):
    program = textwrap.dedent(FAULTS if kept else FAULTS.replace("    keep_freed_memory()\n", ""))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    here, in_a_thread = map(int, done.stdout.split())  # of the 51,000 pages of 4 KiB
    if kept:
        assert max(here, in_a_thread) < 500
    else:
        assert min(here, in_a_thread) > 500
