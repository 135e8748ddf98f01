"""Sockets blocked: a module `sitecustomize` for processes that may reach no other machine, and tell if they try to."""

OFFLINE = '''
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
