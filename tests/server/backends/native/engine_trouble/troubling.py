"""What tests of an engine in trouble share: the model's answers, and signals to its process."""

import json
import os
import signal

from tests.server.inside import Inside, until

TEXT = "".join(f"{number:03} " for number in range(80))
ARGUMENTS = json.dumps({"at": TEXT})
CALL = f'Look. <tool_call>\n{{"name": "look", "arguments": {ARGUMENTS}}}</tool_call>'
LOOK = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False}


def engine_pid(inside: Inside) -> int:
    loaded = inside.native._pool.latest
    assert loaded is not None
    assert loaded.engines.processes
    return loaded.engines.processes[0].ready.result().pid


def signalled(inside: Inside, number: signal.Signals) -> int:
    pid = engine_pid(inside)
    os.kill(pid, number)
    return pid


async def renewed(inside: Inside, pid: int) -> None:
    """Another engine is there in the place of this one."""
    await until(lambda: inside.native.is_ready and engine_pid(inside) != pid)
