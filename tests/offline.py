"""Sockets blocked, in processes that may reach no other machine, and tell if they try to."""

import os
import sys
import textwrap
from pathlib import Path

_OFFLINE = '''
    import os, sys

    NEAR = ("127.", "::1", "localhost", "0.0.0.0", "::")

    def watch(event, arguments):
        """Tells of addresses of other machines in the file REACHED, and refuses them."""
        if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
            address = arguments[1]
        elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
            address = arguments
        else:
            return
        if isinstance(address, tuple) and not str(address[0] or "localhost").startswith(NEAR):
            with open(os.environ["REACHED"], "a") as file:
                print(event, address, file=file)
            raise OSError(f"this process may reach no other machine: {event} {address}")

    sys.addaudithook(watch)
'''


def blocked(folder: Path) -> dict[str, str]:
    """Gives the variables of such processes; an attempt leaves a file `reached` in the folder, which they need."""
    (folder / "sitecustomize.py").write_text(textwrap.dedent(_OFFLINE))
    path = os.pathsep.join([str(folder), *sys.path])
    return os.environ | {"PYTHONPATH": path, "REACHED": str(folder / "reached")}
