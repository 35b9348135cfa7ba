"""System calls that no sandboxed program may make, as a filter that bubblewrap gives to the kernel.

Owns the list: what looks into other processes, rings that go around filters, keys of the kernel, new user
namespaces and mounts, sockets that no network namespace holds back (to a virtual machine's host) or that no
build needs, typing into terminals, the clock. Walls hold without it but for such sockets; it takes away what
attacks on the kernel are made of. A call is answered with an error, as if the kernel did not have it. Does
not own the walls (`bubblewrap`).
"""

import errno
import platform
import struct
from dataclasses import dataclass

_LOAD, _EQUALS, _AT_LEAST, _HAS_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # classic BPF
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24  # in the kernel's seccomp_data
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NEW_USER_NAMESPACE = 0x10000000  # a flag of clone and unshare
_X32 = 0x40000000  # numbers of x86-64's other system calls begin here

# The same numbers on every machine: io_uring_*, the newer calls that mount, and what takes another process's
# descriptors, gives back its memory, sets quotas, or hides memory from everybody.
_EVERYWHERE = {
    **{"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427},
    **{"open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433},
    **{"mount_setattr": 442, "open_tree_attr": 467},
    **{"pidfd_getfd": 438, "process_madvise": 440, "process_mrelease": 448},
    **{"quotactl_fd": 443, "memfd_secret": 447},
}
FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}  # that a socket may have
# Typing into a terminal, its older way on consoles, and other line disciplines.
TERMINAL_REQUESTS = {"TIOCSTI": 0x5412, "TIOCLINUX": 0x541C, "TIOCSETD": 0x5423}


@dataclass(frozen=True)
class _Machine:
    architecture: int  # as the kernel's audit names it
    denied: dict[str, int]
    clone: int
    unshare: int
    sockets: tuple[int, int]  # socket, socketpair
    ioctl: int
    clone3: int = 435

    @property
    def all_denied(self) -> dict[str, int]:
        """Return the calls that are denied whatever their arguments are."""
        return {**self.denied, **_EVERYWHERE}


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
            **{"kcmp": 312, "fanotify_init": 300, "fanotify_mark": 301, "vmsplice": 278, "syslog": 103},
            **{"lookup_dcookie": 212, "quotactl": 179, "acct": 163, "swapon": 167, "swapoff": 168},
            **{"reboot": 169, "vhangup": 153, "nfsservctl": 180, "chroot": 161},
            **{"settimeofday": 164, "clock_settime": 227},
            **{"iopl": 172, "ioperm": 173, "modify_ldt": 154},
        },
        clone=56,
        unshare=272,
        sockets=(41, 53),
        ioctl=16,
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
            **{"kcmp": 272, "fanotify_init": 262, "fanotify_mark": 263, "vmsplice": 75, "syslog": 116},
            **{"lookup_dcookie": 18, "quotactl": 60, "acct": 89, "swapon": 224, "swapoff": 225},
            **{"reboot": 142, "vhangup": 58, "nfsservctl": 42, "chroot": 51},
            **{"settimeofday": 170, "clock_settime": 112},
        },
        clone=220,
        unshare=97,
        sockets=(198, 199),
        ioctl=29,
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
    for number in known.all_denied.values():
        program += _if(_EQUALS, number, errno.EPERM)
    for number in known.sockets:
        program += _only(number, _FIRST_ARGUMENT, tuple(FAMILIES.values()), errno.EAFNOSUPPORT)
    program += _none(known.ioctl, _SECOND_ARGUMENT, tuple(TERMINAL_REQUESTS.values()), errno.EPERM)
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


def _only(number: int, argument: int, values: tuple[int, ...], error: int) -> list[bytes]:
    """Return the error if a call has another argument than these."""
    tests = [_step(_EQUALS, value, yes=len(values) - place) for place, value in enumerate(values)]
    ends = [_step(_RETURN, _ERRNO | error), _step(_RETURN, _ALLOW)]
    return [_step(_EQUALS, number, no=1 + len(tests) + len(ends)), _step(_LOAD, argument), *tests, *ends]


def _none(number: int, argument: int, values: tuple[int, ...], error: int) -> list[bytes]:
    """Return the error if a call has one of these arguments."""
    tests = [step for value in values for step in _if(_EQUALS, value, error)]
    return [_step(_EQUALS, number, no=2 + len(tests)), _step(_LOAD, argument), *tests, _step(_RETURN, _ALLOW)]


def _unless(test: int, value: int, error: int) -> list[bytes]:
    return [_step(test, value, yes=1), _step(_RETURN, _ERRNO | error)]
