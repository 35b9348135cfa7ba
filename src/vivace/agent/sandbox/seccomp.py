"""System calls that no sandboxed program may make, as a filter that bubblewrap gives to the kernel.

Owns the list: what looks into other processes, rings that go around filters, keys of the kernel, new user
namespaces and mounts. Walls hold without it; it takes away what attacks on the kernel are made of. A call is
answered with an error, as if the kernel did not have it. Does not own the walls (`bubblewrap`).
"""

import errno
import platform
import struct
from dataclasses import dataclass

_LOAD, _EQUALS, _AT_LEAST, _HAS_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # classic BPF
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # where they are in the kernel's seccomp_data
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NEW_USER_NAMESPACE = 0x10000000  # a flag of clone and unshare
_X32 = 0x40000000  # numbers of x86-64's other system calls begin here

# The same numbers on every machine: io_uring_*, and the newer calls that mount.
_EVERYWHERE = (425, 426, 427, 428, 429, 430, 431, 432, 433, 442)


@dataclass(frozen=True)
class _Machine:
    architecture: int  # as the kernel's audit names it
    denied: dict[str, int]
    clone: int
    unshare: int
    clone3: int = 435


_MACHINES = {
    "x86_64": _Machine(
        0xC000003E,
        {
            **{"ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311},
            **{"add_key": 248, "request_key": 249, "keyctl": 250},
            **{"bpf": 321, "perf_event_open": 298, "userfaultfd": 323, "open_by_handle_at": 304},
            **{"mount": 165, "umount2": 166, "pivot_root": 155, "setns": 308},
            **{"init_module": 175, "finit_module": 313, "delete_module": 176},
            **{"kexec_load": 246, "kexec_file_load": 320},
        },
        clone=56,
        unshare=272,
    ),
    "aarch64": _Machine(
        0xC00000B7,
        {
            **{"ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271},
            **{"add_key": 217, "request_key": 218, "keyctl": 219},
            **{"bpf": 280, "perf_event_open": 241, "userfaultfd": 282, "open_by_handle_at": 265},
            **{"mount": 40, "umount2": 39, "pivot_root": 41, "setns": 268},
            **{"init_module": 105, "finit_module": 273, "delete_module": 106},
            **{"kexec_load": 104, "kexec_file_load": 294},
        },
        clone=220,
        unshare=97,
    ),
}


def seccomp_filter(machine: str = "") -> bytes:
    """Return the filter for a machine, this one if none is named; b"" where we know none of its numbers."""
    known = _MACHINES.get(machine or platform.machine())
    if known is None:
        return b""
    program = [
        _step(_LOAD, _ARCHITECTURE),
        *_unless(_EQUALS, known.architecture, errno.EPERM),  # 32-bit programs have other numbers
        _step(_LOAD, _NUMBER),
        *_if(_AT_LEAST, _X32, errno.EPERM),
        *_if(_EQUALS, known.clone3, errno.ENOSYS),  # its flags are in memory; libraries use clone then
    ]
    for number in (*known.denied.values(), *_EVERYWHERE):
        program += _if(_EQUALS, number, errno.EPERM)
    for number in (known.clone, known.unshare):
        program += [
            _step(_EQUALS, number, no=4),
            _step(_LOAD, _FIRST_ARGUMENT),
            *_if(_HAS_BIT, _NEW_USER_NAMESPACE, errno.EPERM),
            _step(_RETURN, _ALLOW),
        ]
    return b"".join([*program, _step(_RETURN, _ALLOW)])


def _step(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """Return one instruction. `yes` and `no` are how many instructions are passed over then."""
    return struct.pack("=HBBI", code, yes, no, value)


def _if(test: int, value: int, error: int) -> list[bytes]:
    """Return the error if the test holds."""
    return [_step(test, value, no=1), _step(_RETURN, _ERRNO | error)]


def _unless(test: int, value: int, error: int) -> list[bytes]:
    return [_step(test, value, yes=1), _step(_RETURN, _ERRNO | error)]
