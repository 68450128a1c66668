"""Keeps the ports of TensorFlow's servers to this program's processes.

TensorFlow (2.21) listens on all addresses of a host, whatever address it is given, and runs any
graph for whoever connects. So the processes that open such ports share a network namespace (man 7
network_namespaces) with a loopback device only: nothing listens outside of it. Making one takes no
rights where users may make user namespaces. Where the kernel refuses, the listening sockets take
nothing from other hosts: they are bound to the loopback device (man 7 socket, SO_BINDTODEVICE),
which before Linux 5.7 takes rights, or a filter drops it (SO_ATTACH_FILTER), which takes some now.
"""

import contextlib
import ctypes
import fcntl
import functools
import logging
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator

VARIABLE = "TFPLACE_NETWORK"
"""Holds, in the environment of a child, where the namespaces are that it is to enter; nothing where
they were refused."""
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_SIOCSIFFLAGS, _UP = 0x8914, 0x1
_SO_BINDTODEVICE, _SO_ATTACH_FILTER = 25, 26
_FILTER = (  # (code, jump if true, jump if false, operand): linux/filter.h
    (0x28, 0, 0, 0xFFFFF000),  # the protocol (SKF_AD_OFF + SKF_AD_PROTOCOL)
    (0x15, 0, 3, 0x0800),  # is IPv4, also on sockets of IPv6
    (0x30, 0, 0, 0xFFF0000C),  # the first byte of the sender's address (SKF_NET_OFF + 12)
    (0x15, 0, 1, 127),
    (0x06, 0, 0, 0xFFFFFFFF),  # taken
    (0x06, 0, 0, 0),  # dropped
)


@functools.cache
def environment(pid: int) -> dict[str, str]:
    """Variables of children whose ports are for each other, and for nobody else.

    Where the kernel refuses a network, a warning says so, once.

    Args:
      pid: of this process, which keeps the network.
    """
    if VARIABLE in os.environ:  # children inherit it
        return {}
    command = [sys.executable, "-I", "-S", __file__]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, **pipes) as maker:  # type: ignore[call-overload]
        kinds = maker.stdout.readline().decode().split()
        opened = []
        with contextlib.suppress(OSError):  # they live as long as these descriptors
            opened = [os.open(f"/proc/{maker.pid}/ns/{kind}", os.O_RDONLY) for kind in kinds]
        said = maker.communicate()[1].decode().splitlines()
    if opened:
        return {VARIABLE: ":".join(f"/proc/{pid}/fd/{descriptor}" for descriptor in opened)}
    warn_of_other_users(f"the kernel gives them no network of their own: {(said or ['?'])[-1]}")
    return {VARIABLE: ""}


def warn_of_other_users(why: str) -> None:
    """Says that ports are open to whoever has an account on this host, or on any."""
    with socket.socket() as any_socket:
        others = "" if _is_closed_to_others(any_socket) else " and other hosts"
    logging.getLogger("tfplace").warning(
        "other users of this host%s can connect to the workers for as long as these run, and run "
        "what they like as you (%s); on a host that only you use and reach that is no matter",
        others,
        why,
    )


def enter(where: str) -> None:
    """Enters the network of VARIABLE, before the first thread; OSError: the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    for descriptor in [os.open(path, os.O_RDONLY) for path in where.split(":")]:
        if libc.setns(descriptor, 0):
            raise OSError(ctypes.get_errno(), f"{where}: {os.strerror(ctypes.get_errno())}")
        os.close(descriptor)


@contextlib.contextmanager
def from_this_host_only(is_always: bool = False) -> Iterator[None]:
    """Sockets on which the process begins to listen in the block take from this host only.

    Nothing is done in a network of its own; nor, unless `is_always`, in a process that wasn't to
    get one, whose cluster may be on other hosts.
    """
    where = os.environ.get(VARIABLE, "" if is_always else "anywhere")
    before = {number for number, _ in _listening()}
    yield
    for number, descriptor in () if where else _listening():
        if number not in before:
            with socket.socket(fileno=os.dup(descriptor)) as listener:
                _is_closed_to_others(listener)


def _is_closed_to_others(listener: socket.socket) -> bool:
    """Lets a socket take connections from this host only; False where the kernel refuses."""
    instructions = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *i) for i in _FILTER))
    program = struct.pack("HP", len(_FILTER), ctypes.addressof(instructions))
    for option, value in ((_SO_BINDTODEVICE, b"lo\0"), (_SO_ATTACH_FILTER, program)):
        with contextlib.suppress(OSError):
            listener.setsockopt(socket.SOL_SOCKET, option, value)
            return True
    return False


def _listening() -> list[tuple[int, int]]:
    """(inode, descriptor) of the sockets on which this process listens for the network."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with (
            contextlib.suppress(OSError),  # the listing's own descriptor, or no socket
            socket.socket(fileno=os.dup(int(name))) as each,
        ):
            is_network = each.family in (socket.AF_INET, socket.AF_INET6)
            if is_network and each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                found.append((os.fstat(int(name)).st_ino, int(name)))
    return found


def _make() -> None:
    """In a process of its own: makes the namespaces, names them, and waits until they are opened.

    As root, or with such rights, without a namespace of users, in which others' files are closed.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    kinds = "net"
    if libc.unshare(_NEW_NETWORK):
        if libc.unshare(_NEW_USER | _NEW_NETWORK):
            sys.exit(os.strerror(ctypes.get_errno()))
        kinds = "user net"
        lines = {
            "setgroups": "deny",
            "uid_map": f"{user} {user} 1",
            "gid_map": f"{group} {group} 1",
        }
        for name, line in lines.items():
            with open(f"/proc/self/{name}", "w") as file:
                file.write(line)
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _UP))
    print(kinds, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _make()
